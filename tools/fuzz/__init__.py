"""Fuzzing: mutated inputs for every decoder of the broker."""
