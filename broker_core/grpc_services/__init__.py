"""RocketMQ 5's RPCs: each reads a message, calls a request's handler and writes its answer."""
