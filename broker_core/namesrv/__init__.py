"""The name server, which lists brokers and their topics, and registration with it."""
