"""Commands: `manage.py collect`."""
