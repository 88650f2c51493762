"""Compiled twins of the broker's hottest paths."""
