"""Pages about subscription groups."""
