"""Columns of the message table, and the addresses of message pages."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy

from console.lib.content import json_of, path_of, text_of, values_at
from console.lib.tables import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from console.lib.stored import StoredMessage

NAMES_OFFERED_MAX = 2_000
VALUES_SHOWN_MAX, VALUE_CHARACTERS_MAX = 5, 200

COLUMNS = (
    Column("stored", gettext_lazy("Stored")),
    Column("queue", gettext_lazy("Queue"), gettext_lazy("offset"), is_fact=True),
    Column("tag", gettext_lazy("Tag")),
    Column("keys", gettext_lazy("Keys"), is_fact=True),
    Column("size", gettext_lazy("Size"), is_number=True),
    Column("producer", gettext_lazy("Producer's address")),
    Column("retries", gettext_lazy("Redeliveries"), is_number=True, is_extra=True),
    Column("id", gettext_lazy("ID"), is_extra=True),
)

ALL_TOPICS_COLUMNS = (
    COLUMNS[0],
    Column("topic", gettext_lazy("Topic"), is_fact=True),
    *COLUMNS[1:],
)
"""Columns for messages of several topics."""

OUTCOMES = {
    "committed": gettext_lazy("committed"),
    "rolled_back": gettext_lazy("rolled back"),
    "undecided": gettext_lazy("pending"),
    "given_up": gettext_lazy("dead-lettered"),
}
"""The outcomes of half messages."""


class Row(NamedTuple):
    """A message with its values at the paths that are shown as columns."""

    message: StoredMessage
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def url(self) -> str:
        return message_url(self.message)

    @property
    def outcome(self) -> str:
        """The outcome of a half message, or "" for any other message."""
        message = self.message
        return str(OUTCOMES.get(message.outcome, _("withheld"))) if message.is_half else ""


def columns_with(paths: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns, including one for each JSON path."""
    return (*COLUMNS, *(Column(f"field{at}", path) for at, path in enumerate(paths)))


def rows_of(messages: Iterable[StoredMessage], paths: Sequence[str] = ()) -> list[Row]:
    return [Row(each, tuple(fields_of(each, paths))) for each in messages]


def fields_of(message: StoredMessage, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the column name and the message's value for each path."""
    body = json_of(message) if paths else None
    for at, path in enumerate(paths):
        found = values_at(body, path_of(path)) if body is not None else iter(())
        shown = ", ".join(text_of(each) for each in islice(found, VALUES_SHOWN_MAX))
        yield f"field{at}", shown[:VALUE_CHARACTERS_MAX]


def message_url(message: StoredMessage) -> str:
    """Return the page of a message; for a half message, its message history."""
    return reverse(
        "family:message" if message.is_half else "browse:message",
        args=[message.broker_name, message.queue_id, message.queue_offset, message.topic],
    )
