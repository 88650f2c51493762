"""The analytics program."""

from __future__ import annotations

import sys

from django.conf import settings


def program() -> list[str]:
    """Return the command for the analytics program, without arguments."""
    given = getattr(settings, "TREBUCHET_ANALYTICS_COMMAND", None)
    return list(given) if given else [sys.executable, "-m", "analytics"]
