"""The pod template."""
