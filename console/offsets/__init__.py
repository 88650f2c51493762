"""Pages about consumer offsets."""
