"""People's pages: accounts, roles, preferences, masking rules, the audit log."""
