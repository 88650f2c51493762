"""The lake: what operators do to it, by way of the analytics program."""
