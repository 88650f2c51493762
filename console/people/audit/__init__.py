"""The audit log of changes."""
