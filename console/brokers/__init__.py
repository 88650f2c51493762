"""The page of one broker."""
