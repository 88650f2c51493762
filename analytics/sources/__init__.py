"""Data sources for Spark."""
