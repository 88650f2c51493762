"""Commands: `manage.py demo`."""
