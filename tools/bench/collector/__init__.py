"""Benchmark of the collector."""
