"""The metrics page, made of independent parts.

A part that can't be read is left out, and a metric reports this; the rest is unaffected.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import DatabaseError

from broker_core.metrics.exposition import Family, lines_of
from console.observe.history.database import HistoryError
from console.observe.scraping import alerts, history, reports, services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

logger = logging.getLogger(__name__)

PARTS: dict[str, Callable[[int], Iterable[Family]]] = {
    "history": history.families,
    "alerts": alerts.families,
    "reports": reports.families,
    "surroundings": services.families,
}


def text(now_ms: int) -> bytes:
    """Return the current page."""
    return "".join(lines_of(families(now_ms), {}, settings.TREBUCHET_METRICS_SERIES_MAX)).encode()


def families(now_ms: int) -> list[Family]:
    found: list[Family] = []
    readable: dict[str, float] = {}
    for part, read in PARTS.items():
        try:
            found += list(read(now_ms))
        except (HistoryError, DatabaseError) as error:
            logger.warning("metrics unreadable part=%s error=%s", part, error)
            readable[part] = 0
        else:
            readable[part] = 1
    found.append(
        Family(
            "trebuchet_console_readable",
            "gauge",
            "Whether a part of this page could be read",
            [({"part": part}, value) for part, value in readable.items()],
        )
    )
    return found
