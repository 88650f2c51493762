"""Delivery of messages to consumers: parked pulls and filters."""
