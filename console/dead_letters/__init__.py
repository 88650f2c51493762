"""Pages about dead letters: messages that a group gave up."""
