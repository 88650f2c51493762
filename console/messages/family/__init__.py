"""Message history: every step of a message, on one page."""
