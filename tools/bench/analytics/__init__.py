"""Benchmark of the Spark sources, the lake and the reports."""
