"""How messages reach consumers: parked pulls, tag filters."""
