"""The inspecting Job's program: reads a model's config.json and says what plans need. Standard library and facts only."""
