"""The inspection Job: reads the facts in a model's config.json. Imports only the standard library and facts."""
