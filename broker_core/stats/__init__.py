"""Counters by item and window, latencies, and how far the broker is behind."""
