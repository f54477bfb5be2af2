"""The same service with one setting changed."""
