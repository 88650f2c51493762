"""Alerts: rules over issues, the history and queries that notify people by webhook and email."""
