"""Exports a search's messages: CSV for spreadsheets, JSON lines for programs."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

from console.gateway.access import gateway
from console.lib import csv_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from console.lib.content import Filter
    from console.lib.stored import MessageRange, Place, StoredMessage

MESSAGES_MAX = 10_000
SEARCH_S = 20.0
"""An export occupies a worker of the console for up to this time."""
READ_AT_ONCE = 500
COLUMNS = (
    "stored_ms",
    "topic",
    "broker",
    "queue",
    "offset",
    "id",
    "unique_key",
    "keys",
    "tag",
    "born_ms",
    "born_host",
    "reconsume_times",
    "bytes",
    "properties",
    "body",
    "body_encoding",
    "other_properties",
)
WIDE = frozenset({"stored_ms", "born_ms", "offset"})
"""64-bit numbers, written as text in JSON because many programs round them."""


class Collected:
    """The messages that a search found, newest first, and whether there may be more."""

    def __init__(self, wanted: MessageRange, condition: Filter) -> None:
        """Search.

        Raises:
            GatewayError: a broker didn't respond; a partial export could be mistaken for all of it.
        """
        self.messages: list[StoredMessage] = []
        self.is_whole = False
        before: Place | None = None
        until = time.monotonic() + SEARCH_S
        while len(self.messages) < MESSAGES_MAX and time.monotonic() < until:
            batch = gateway().browse.newest(wanted, before, READ_AT_ONCE)
            self.messages += [each for each in batch.messages if condition.matches(each)]
            if not batch.messages or not batch.left:
                self.is_whole = len(self.messages) <= MESSAGES_MAX
                break
            before = batch.messages[-1].place
        del self.messages[MESSAGES_MAX:]


def row_of(message: StoredMessage) -> dict[str, Any]:
    body, encoding = body_text(message)
    return {
        "stored_ms": str(message.store_ms),
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": str(message.queue_offset),
        "id": message.offset_msg_id,
        "unique_key": message.uniq_key,
        "keys": message.keys,
        "tag": message.tags,
        "born_ms": str(message.born_ms),
        "born_host": message.born_host,
        "reconsume_times": message.reconsume_times,
        "bytes": message.body_bytes,
        "properties": dict(message.properties),
        "body": body,
        "body_encoding": encoding,
        "other_properties": message.other_properties,
    }


def body_text(message: StoredMessage) -> tuple[str | None, str]:
    """Return a body and its encoding: text or base64, marked if it is only the start."""
    if message.body is None:
        return None, "unreadable"
    try:
        text, encoding = message.body.decode(), "text"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(message.body).decode(), "base64"
    return text, f"{encoding}, cut" if message.is_cut else encoding


def json_lines(messages: Iterable[StoredMessage]) -> Iterator[str]:
    for each in messages:
        yield json.dumps(row_of(each), ensure_ascii=False) + "\n"


def csv_lines(messages: Iterable[StoredMessage]) -> Iterator[str]:
    """Return the messages as lines of CSV, starting with the column names."""
    rows = (map(row_of(each).get, COLUMNS) for each in messages)
    return csv_file.csv_lines(COLUMNS, (map(text_of, row) for row in rows))


def text_of(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | tuple) else value


KINDS = {
    "csv": (csv_lines, "text/csv; charset=utf-8"),
    "jsonl": (json_lines, "application/x-ndjson; charset=utf-8"),
}
