"""The process: lease, watches, queue, workers, health."""
