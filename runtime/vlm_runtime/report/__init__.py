"""What the runtime reports: probes, metrics, report, log."""
