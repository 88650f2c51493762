"""Helpers that import no app of the console."""
