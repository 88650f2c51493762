"""Metrics over time: samples of every broker, kept for a year."""
