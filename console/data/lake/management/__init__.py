"""Management commands of the lake."""
