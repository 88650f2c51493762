"""The checks of deploy/test: options, steps, and the repetition of failed tests."""
