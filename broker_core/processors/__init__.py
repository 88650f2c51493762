"""Request processors: one module per family of requests."""
