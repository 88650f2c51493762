"""Sending: messages that people make, and transactions that wait for them."""
