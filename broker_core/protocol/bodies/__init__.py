"""JSON bodies of requests with their answers, by subject."""
