"""Management commands for the audit log."""
