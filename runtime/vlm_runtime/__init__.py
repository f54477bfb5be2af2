"""What runs beside the engine in its container: supervise, check, probe, drain, report."""
