"""Benchmarks: what a message, a page, a report or the trace costs, and beside whom."""
