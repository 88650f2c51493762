"""What the console says when its own database cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from django.db import OperationalError

IS_LOCKED = "locked"
NO_ROOM = ("full", "No space left", "could not extend")
"""Words of SQLite and PostgreSQL."""


def sentence_for(error: OperationalError) -> str:
    """Return what has happened and what to do; brokers do not depend on this database."""
    said = str(error)
    if IS_LOCKED in said:
        why = _("Another process keeps the console's database locked.")
        advice = _("Nothing was changed; try again in a moment.")
    elif any(words in said for words in NO_ROOM):
        why = _("The disk with the console's database is full.")
        advice = _("Nothing was changed; make room there, then try again.")
    else:
        why = _("The console's database does not answer: %(error)s.") % {
            "error": said.strip().splitlines()[0].rstrip(".") if said.strip() else "-"
        }
        advice = _("Nothing was changed; see that it runs, then try again.")
    return " ".join((why, advice, _("Messages are not affected.")))
