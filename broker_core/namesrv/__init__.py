"""The name server, which knows the brokers and their topics, and registration with it."""
