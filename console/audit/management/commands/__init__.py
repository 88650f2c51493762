"""Commands: `manage.py audit`."""
