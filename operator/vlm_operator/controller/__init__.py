"""Events in, one reconcile per service at a time, status out."""
