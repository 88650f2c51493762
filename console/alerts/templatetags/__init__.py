"""Template tags of alerts."""
