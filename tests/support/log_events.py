"""The events that the broker, analytics and the console log, read from their source."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from tests.support.sources import python_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVELS = {
    "debug": "DEBUG",
    "info": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
    "exception": "ERROR",
}
LOGGER = "logger"
# deploy prints to a terminal and doesn't log.
LOGGING = ("broker_core/", "analytics/", "console/", "deploy/")
BROKER = "broker_core/"
# Methods of the broker that log an event for their caller, with the position of the event.
REPORTERS = {"_report": 0, "_remove_all": 1}
PEER_LOGS = {"peer_log", "_peer_log"}
FIELDS = re.compile(r"^(?P<event>[^=%]+?)(?: \w[\w.]*=%?.*)?$")


class LogCall(NamedTuple):
    """One logging call: where it is, and its format string."""

    path: str
    line: int
    text: str

    @property
    def event(self) -> str | None:
        """Return the words before the first key, or None if the text has no event."""
        found = FIELDS.match(self.text)
        return found and found["event"]


def log_calls() -> Iterator[LogCall]:
    """Yield each call that logs a constant text."""
    for source in python_sources():
        if not source.path.startswith(LOGGING):
            continue
        is_broker = source.path.startswith(BROKER)
        for node in source.nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            for text in texts_of(node, node.func, is_broker=is_broker):
                yield LogCall(source.path, node.lineno, text)


def texts_of(call: ast.Call, function: ast.Attribute, *, is_broker: bool) -> Iterator[str]:
    """Yield the constant texts that a call may log."""
    of_logger = isinstance(function.value, ast.Name) and function.value.id == LOGGER
    first = call.args[0] if call.args else None
    if of_logger and function.attr in LEVELS:
        position = 0
    elif not is_broker:
        return
    elif isinstance(first, ast.Name) and first.id == LOGGER and function.attr == "report":
        position = 2
    elif function.attr in REPORTERS:
        position = REPORTERS[function.attr]
    elif isinstance(function.value, ast.Attribute) and function.value.attr in PEER_LOGS:
        position = 0
    else:
        return
    if position < len(call.args):
        for node in ast.walk(call.args[position]):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
