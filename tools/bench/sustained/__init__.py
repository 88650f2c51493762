"""Benchmark of a broker under a steady load."""
