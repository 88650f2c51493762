"""Commands: `manage.py lake`."""
