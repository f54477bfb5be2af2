"""One reconcile of one service."""
