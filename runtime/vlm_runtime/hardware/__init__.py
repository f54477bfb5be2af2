"""The GPUs of this pod."""
