"""Benchmark of a broker as it grows."""
