"""Commands: `manage.py allow_sql`."""
