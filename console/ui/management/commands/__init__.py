"""Commands: `manage.py makemessages`."""
