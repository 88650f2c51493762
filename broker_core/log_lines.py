"""Log lines that peers can't forge: data from a peer can't end a line or control a terminal.

The names of groups, clients and brokers are logged, and any of them may contain a newline and a
fake line, an escape sequence, or a character that reverses the reading direction. The formatter
escapes the finished line, so callers of a logger don't have to.
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
"""Starts each line of a traceback: only log lines begin at the margin."""


def escape(text: str) -> str:
    """Return a text on one line, with all nonprintable characters escaped as in repr.

    These are control characters, line and paragraph separators, direction marks, characters without
    width, and lone surrogates. A backslash stays single.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


class LineFormatter(logging.Formatter):
    """One line per record, escaped; below it, indented, the traceback line by line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record.

        It neither uses nor sets `exc_text`, which other formatters don't escape.
        """
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        line = escape(self.formatMessage(record))
        if record.exc_info:
            line += _below(self.formatException(record.exc_info))
        elif record.exc_text:
            line += _below(record.exc_text)
        if record.stack_info:
            line += _below(self.formatStack(record.stack_info))
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per record, on one line, for programs that collect logs.

    `time` is RFC 3339 in UTC. The output is ASCII; JSON escapes represent other characters.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; `time` and `level` are first."""
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
    """Return the formatter for TREBUCHET_LOG_FORMAT: text lines or JSON.

    Raises:
        ValueError: the value is invalid.
    """
    wanted = environment.get(FORMAT_VARIABLE) or LINES
    if wanted not in (LINES, JSON):
        raise ValueError(f"{FORMAT_VARIABLE} is {LINES} or {JSON}, not {wanted[:40]!r}")
    return JsonFormatter() if wanted == JSON else LineFormatter(form)


def log_to_stderr(form: str) -> None:
    """Write records from INFO on to standard error, unless the process already has log handlers."""
    handler = logging.StreamHandler(sys.stderr)
    try:
        handler.setFormatter(formatter(form))
    except ValueError as error:
        sys.exit(str(error))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _below(text: str) -> str:
    return "".join(f"\n{INDENT}{escape(line.expandtabs())}" for line in text.split("\n"))
