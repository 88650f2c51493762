"""The console's metrics for Prometheus, if TREBUCHET_METRICS enables them."""
