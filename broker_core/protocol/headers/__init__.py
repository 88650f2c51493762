"""Typed readers of the custom header that travels in extFields."""
