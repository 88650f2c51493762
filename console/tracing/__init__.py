"""Live tracing: the river of messages in the browser."""
