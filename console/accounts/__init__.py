"""Accounts: sign-in, passwords and permissions."""
