"""Commands: `manage.py config`."""
