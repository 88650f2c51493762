"""Shared parts of all pages."""
