"""`make demo`: what the project does, shown on this machine or in a cluster of yours."""
