"""The load: its requests, its targets and its Job."""
