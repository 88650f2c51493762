"""Spark reports over the message log. Doesn't use Django and never writes to the store."""
