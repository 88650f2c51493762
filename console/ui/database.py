"""Messages for failures of the console's own database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from django.db import OperationalError

IS_LOCKED = "locked"
NO_ROOM = ("full", "No space left", "could not extend")
"""Error texts of SQLite and PostgreSQL."""


def sentence_for(error: OperationalError) -> str:
    """Return what happened and what to do; brokers don't depend on this database."""
    text = str(error)
    if IS_LOCKED in text:
        why = _("Another process has locked the console's database.")
        advice = _("Nothing was changed. Try again in a moment.")
    elif any(words in text for words in NO_ROOM):
        why = _("The disk that holds the console's database is full.")
        advice = _("Nothing was changed. Free some space, then try again.")
    else:
        why = _("The console's database isn't responding: %(error)s.") % {
            "error": text.strip().splitlines()[0].rstrip(".") if text.strip() else "-"
        }
        advice = _("Nothing was changed. Check that the database is running, then try again.")
    return " ".join((why, advice, _("Messages aren't affected.")))
