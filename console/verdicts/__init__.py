"""Verdicts: rules that look at the history and say what goes wrong, why, and what to do."""
