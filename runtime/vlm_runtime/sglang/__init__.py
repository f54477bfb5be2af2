"""What the engine loads itself, by entry points. The real ``sglang`` is imported absolutely and only inside the engine."""
