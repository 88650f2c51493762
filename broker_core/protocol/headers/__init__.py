"""Typed readers of the custom headers in extFields."""
