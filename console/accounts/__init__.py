"""Accounts: signing in, passwords, permissions."""
