"""``kubectl vlm``: plans without a cluster, and what a running service does and why."""
