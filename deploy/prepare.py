"""What the console needs before it serves: tables, collected assets, an administrator, schedules.

One process for all of it: starting Django costs more than each step. Runs as
`python -m deploy.prepare`; what the administrator must read goes to standard output, and nothing
else does.
"""

from __future__ import annotations

import os
import sys

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import DatabaseError

STEPS: tuple[tuple[str, dict[str, object]], ...] = (
    ("migrate", {"interactive": False, "verbosity": 0}),
    ("collectstatic", {"interactive": False, "verbosity": 0}),
    ("ensure_admin", {}),
    ("ensure_schedules", {"verbosity": 0}),
)


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    step = "reading the settings"
    try:
        django.setup()
        for step, options in STEPS:
            call_command(step, **options)
    except (CommandError, DatabaseError, ImproperlyConfigured, OSError) as error:
        sys.stderr.write(f"The console could not be prepared ({step}): {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
