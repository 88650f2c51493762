"""Spark reports over the message log; no Django, never a writer of the store."""
