"""Messages: those of a topic and a time, and one by itself."""
