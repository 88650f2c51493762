"""Prepares the console before it serves: tables, static files, an administrator.

One process does everything, because starting Django costs more than any step. Run as `python -m
deploy.commands.prepare`; standard output has only lines for the administrator.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

import django
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader

from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS: tuple[tuple[str, dict[str, object]], ...] = (
    ("migrate", {"interactive": False, "verbosity": 0}),
    ("collectstatic", {"interactive": False, "verbosity": 0}),
    ("ensure_admin", {}),
)
NAMES_SHOWN = 3
WITHOUT_ACCOUNT = "--without-account"
"""Don't create an administrator, because the output must not contain a password."""


def main(arguments: Sequence[str]) -> int:
    if arguments not in ([], [WITHOUT_ACCOUNT]):
        sys.stderr.write(f"usage: python -m deploy.commands.prepare [{WITHOUT_ACCOUNT}]\n")
        return 2
    steps = [one for one in STEPS if not (arguments and one[0] == "ensure_admin")]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    step = "reading the settings"
    words = io.StringIO()
    try:
        django.setup()
        step = "migrate"
        refuse_later_tables()
        for step, options in steps:
            words.seek(0)
            words.truncate()
            call_command(step, **options, stdout=words)
        said = words.getvalue().strip()
        sys.stdout.write(f"{said or known_administrators()}\n")
    except (CommandError, DatabaseError, ImproperlyConfigured, OSError) as error:
        sys.stderr.write(f"Couldn't prepare the console ({step}): {error}\n")
        return 2
    return 0


def refuse_later_tables() -> None:
    """Check that no later version of the console has changed its tables.

    Raises:
        CommandError: a later version has; nothing was changed.
    """
    loader = MigrationLoader(connection)
    newest: dict[str, str] = {}
    for label, name in loader.disk_migrations or ():
        newest[label] = max(newest.get(label, ""), name)
    later = sorted(
        f"{label}.{name}"
        for label, name in loader.applied_migrations or ()
        # A migration that was merged into another is also unknown, but not later.
        if name > newest.get(label, name)
    )
    if later:
        raise CommandError(
            f"a later version changed the tables ({', '.join(later[:NAMES_SHOWN])}). Start "
            "that version, or restore a backup that was made before it was started."
        )


def known_administrators() -> str:
    users = get_user_model().objects.filter(is_staff=True, is_active=True).order_by("pk")
    names = [user.get_username() for user in users[: NAMES_SHOWN + 1]]
    more = ", .." if len(names) > NAMES_SHOWN else ""
    return translated("Administrator {names}", names=f"{', '.join(names[:NAMES_SHOWN])}{more}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
