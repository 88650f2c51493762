"""Fuzzing: changed inputs for every decoder of the broker."""
