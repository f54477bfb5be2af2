"""Everything that knows SGLang."""
