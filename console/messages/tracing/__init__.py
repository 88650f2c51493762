"""Live tracing: the stream of messages in the browser."""
