"""POP: consumers lease messages from the broker instead of owning queues."""
