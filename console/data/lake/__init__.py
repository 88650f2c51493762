"""The lake: operator commands and status, through the analytics program."""
