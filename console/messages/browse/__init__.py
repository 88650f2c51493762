"""Messages: search a topic, and show a single message."""
