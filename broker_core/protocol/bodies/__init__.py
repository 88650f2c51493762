"""JSON bodies of requests and answers, by subject."""
