"""Log lines that nobody but us can begin: what a peer sends cannot end a line or steer a terminal.

The names of groups, clients and brokers reach the log, and any of them may hold a newline and a
line of its own, an escape sequence, or a character that turns the reading direction. The formatter
escapes the finished line, so that no call of a logger has to remember it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT_VARIABLE = "TREBUCHET_LOG_FORMAT"
LINES, JSON = "lines", "json"
INDENT = "    "
"""Before each line of a traceback: a line of the log begins at the margin, nothing else does."""


def escaped(text: str) -> str:
    """Return a text with all that is not printed escaped as repr does, on one line.

    That is control characters, line and paragraph separators, marks of direction, characters
    without width, lone surrogates. A backslash stays one.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


class LineFormatter(logging.Formatter):
    """One line a record, escaped; below it, indented, the traceback line by line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record.

        It neither uses nor leaves `exc_text`, which other formatters do not escape.
        """
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        line = escaped(self.formatMessage(record))
        if record.exc_info:
            line += _below(self.formatException(record.exc_info))
        elif record.exc_text:
            line += _below(record.exc_text)
        if record.stack_info:
            line += _below(self.formatStack(record.stack_info))
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a record, on one line, for programs that collect logs.

    `time` is RFC 3339 in UTC. It is ASCII: what is not printed is escaped as JSON does.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; `time` and `level` come first."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said: dict[str, object] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        elif record.exc_text:
            said["error"] = record.exc_text
        if record.stack_info:
            said["stack"] = self.formatStack(record.stack_info)
        return json.dumps(said, separators=(",", ":"))


def formatter(form: str, environment: Mapping[str, str] = os.environ) -> logging.Formatter:
    """Return what TREBUCHET_LOG_FORMAT asks for: lines of this form, or JSON.

    Raises:
        ValueError: it asks for something else.
    """
    wanted = environment.get(FORMAT_VARIABLE) or LINES
    if wanted not in (LINES, JSON):
        raise ValueError(f"{FORMAT_VARIABLE} is {LINES} or {JSON}, not {wanted[:40]!r}")
    return JsonFormatter() if wanted == JSON else LineFormatter(form)


def log_to_stderr(form: str) -> None:
    """Write records from INFO on to standard error, unless the process logs elsewhere already."""
    handler = logging.StreamHandler(sys.stderr)
    try:
        handler.setFormatter(formatter(form))
    except ValueError as error:
        sys.exit(str(error))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _below(text: str) -> str:
    return "".join(f"\n{INDENT}{escaped(line.expandtabs())}" for line in text.split("\n"))
