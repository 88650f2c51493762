"""The REST API, its tokens and the API page."""
