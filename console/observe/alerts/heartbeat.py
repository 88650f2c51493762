"""The dead man's switch: an external service alerts people when heartbeats stop.

Heartbeats are sent only while the collector takes samples and rules are applied.
"""

from __future__ import annotations

import http.client
import logging
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from console.observe.alerts.models import Preferences, preferences
from console.observe.alerts.posting import request
from console.observe.alerts.targets import TargetError, parsed

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class Heartbeat:
    """Not thread-safe."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        is_collecting: Callable[[], bool],
    ) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._is_collecting = is_collecting
        self._sent: int | None = None
        self._last_problem = ""

    def turn(self) -> None:
        """Send a heartbeat if one is due."""
        kept = preferences()
        if not kept.heartbeat_url or not self._is_collecting():
            return
        at = self._monotonic_ms()
        if self._sent is not None and at - self._sent < kept.heartbeat_seconds * 1_000:
            return
        self._sent = at
        try:
            answer = request("GET", parsed(kept.heartbeat_url), {}, None)
        except TargetError as error:
            problem = str(error)
        except (OSError, http.client.HTTPException) as error:
            problem = _("No response: %(why)s.") % {"why": type(error).__name__}
        else:
            good = 200 <= answer.status < 300
            problem = "" if good else f"{answer.status} {answer.reason}".strip()
        values: dict[str, int | str] = {"heartbeat_outcome": problem[:400]}
        if not problem:
            values["heartbeat_ms"] = self._now_ms()
        Preferences.objects.filter(pk=kept.pk).update(**values)
        if problem and problem != self._last_problem:
            logger.warning("heartbeat not sent problem=%s", problem)
        self._last_problem = problem
