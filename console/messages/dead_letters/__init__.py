"""Pages of dead letters: messages that a group gave up on."""
