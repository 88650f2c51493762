"""The flow as HTML: read once and rendered once per language for all viewers."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from django.template.loader import render_to_string
from django.utils.translation import get_language

from console.observe.flow.drawing import ROW, WIDTH, draw
from console.observe.flow.reading import Flow, flow_of
from console.observe.history.access import history_store
from console.observe.history.database import HistoryError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

KEPT_MS = 4_000


class SharedFlow:
    """The flow that all viewers share; it is reread at most every KEPT_MS. Thread-safe."""

    def __init__(self, read: Callable[[int], Flow]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._flow: Flow | None = None
        self._html: dict[str, str] = {}

    def html(self, now_ms: int) -> str:
        """Return the HTML in the current language."""
        with self._lock:
            try:
                return self._rendered(now_ms)
            except HistoryError as error:
                logger.warning("flow unreadable error=%s", error)
                return render_to_string("flow/_unreadable.html")

    def _rendered(self, now_ms: int) -> str:
        if self._flow is None or not 0 <= now_ms - self._flow.at_ms < KEPT_MS:
            self._flow, self._html = self._read(now_ms), {}
        language = get_language() or ""
        if language not in self._html:
            self._html[language] = rendered(self._flow)
        return self._html[language]

    def forget(self) -> None:
        with self._lock:
            self._flow = None


def rendered(flow: Flow) -> str:
    rows = max(len(flow.brokers), len(flow.topics), len(flow.groups))
    context = {
        "flow": flow,
        "received": draw(flow.received, flow.brokers, flow.topics),
        "consumed": draw(flow.consumed, flow.topics, flow.groups),
        "width": WIDTH,
        "height": rows * ROW,
    }
    return render_to_string("flow/_flow.html", context)


shared_flow = SharedFlow(lambda now_ms: flow_of(history_store(), now_ms))
