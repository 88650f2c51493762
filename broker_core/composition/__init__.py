"""Builds the broker's parts, by concern; `broker.py` combines them."""
