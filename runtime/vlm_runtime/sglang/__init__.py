"""What the runtime knows of SGLang."""
