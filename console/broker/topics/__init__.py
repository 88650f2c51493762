"""Pages that list, create, change and delete topics."""
