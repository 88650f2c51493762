"""Transactional messages: half messages, their outcomes, and checks with producers."""
