"""From what was observed to the status. Pure."""
