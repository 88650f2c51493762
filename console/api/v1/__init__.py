"""Version 1 of the API: a module an area, an operation for each thing that pages do."""
