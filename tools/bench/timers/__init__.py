"""Measure the cost of pending timer messages: memory, event-loop turns, startup and lateness."""
