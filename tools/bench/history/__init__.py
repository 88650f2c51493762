"""Benchmark of the metrics history."""
