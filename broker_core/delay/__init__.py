"""Delayed delivery: messages that wait for their delivery time."""
