"""Pages about messages: search, history of a message, sending, dead letters, live."""
