"""Template tags of the history."""
