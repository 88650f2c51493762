"""How messages reach consumers: held pulls, tag filters."""
