"""Administration requests, one module per subject."""
