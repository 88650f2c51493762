"""Mutation testing: changes of the code that no test notices."""
