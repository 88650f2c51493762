"""The family of a message: all that became of it, in one picture."""
