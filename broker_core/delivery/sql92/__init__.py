"""SQL92 filters: expressions over a message's properties, compiled once, evaluated per message."""
