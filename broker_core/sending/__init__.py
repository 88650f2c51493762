"""Sending: where a message is put, whether it may be, and when it is dead. Knows no wire."""
