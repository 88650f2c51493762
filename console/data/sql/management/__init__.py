"""Management commands of the SQL page."""
