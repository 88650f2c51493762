"""Benchmark of a master and its slave."""
