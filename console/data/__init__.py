"""The lake, the reports on it, and SQL."""
