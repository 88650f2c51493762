"""The broker's metrics for Prometheus."""
