"""The broker pages."""
