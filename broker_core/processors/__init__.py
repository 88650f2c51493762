"""Requests: one header, one call, one answer, one file a family."""
