"""The REST API for programs, its tokens, and the page about it."""
