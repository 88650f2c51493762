"""The tour: takes the screenshots of the console for the documents."""
