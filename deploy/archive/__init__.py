"""Backups: contents, format, and copying at low priority."""
