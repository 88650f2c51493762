"""Administration requests, one file a subject."""
