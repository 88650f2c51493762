"""Benchmark of the console's pages."""
