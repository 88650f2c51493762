"""Template tags for connecting clients."""
