"""Benchmark of the live trace."""
