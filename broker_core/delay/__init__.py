"""Delayed delivery: messages that wait for their time."""
