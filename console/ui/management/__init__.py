"""Management commands of the pages."""
