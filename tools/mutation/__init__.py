"""Mutation testing: find code changes that no test notices."""
