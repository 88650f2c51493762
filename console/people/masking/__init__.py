"""Masking: hides parts of messages unless a person requests them, which is audited."""
