"""NetworkPolicy and what the installer decided about networks."""
