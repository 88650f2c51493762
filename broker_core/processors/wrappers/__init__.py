"""Wrappers around handlers: access control, extensions, latency."""
