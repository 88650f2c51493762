"""What the console says to Prometheus, if TREBUCHET_METRICS lets somebody ask."""
