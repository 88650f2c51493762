"""Counters by item and by window, latencies, and how far the broker is behind."""
