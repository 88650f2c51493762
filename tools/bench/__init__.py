"""Benchmarks: the cost of a message, a page, a report or the trace, compared with others."""
