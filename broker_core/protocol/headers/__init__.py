"""Typed readers of the custom headers that travel in extFields."""
