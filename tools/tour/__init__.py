"""The tour: takes the pictures of the console that the documents show."""
