"""The table of models, config.json and the hub -> ModelFacts."""
