"""Management commands of the collector."""
