"""Where the engine's time goes."""
