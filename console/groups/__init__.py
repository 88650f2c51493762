"""Pages about consumer groups."""
