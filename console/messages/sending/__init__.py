"""Sending: messages that people write, and their undecided transactions."""
