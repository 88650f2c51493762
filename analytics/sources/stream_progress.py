"""Progress of a `rocketmq` stream, as Spark keeps it in a checkpoint.

    {"version": 2,
     "offsets": {"orders": {"broker-a": {"0": 23, "1": 40}}},
     "marks": {"orders": {"broker-a": {"queue": 1, "offset": 39, "stored": 1795251442000}}},
     "starts": {"bills": {"broker-a": {"0": 7}}}}

`offsets` are where the next batch begins. A mark names a message of a topic on a broker and when
the broker stored it: a topic that was deleted and created again holds another message there, or
none. `starts` are the queues that the batch read from another offset than the progress before it
says: queues that were new, and those of a topic that was created again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from analytics.sources.queue_offsets import flat, nested, table, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.remote.cluster import Queue

VERSION = 2


class Place(NamedTuple):
    """A topic on one broker, which creates and deletes it as a whole."""

    topic: str
    broker_name: str

    def __str__(self) -> str:
        return f"{self.topic} on {self.broker_name}"


class Mark(NamedTuple):
    """What a topic on a broker held when it was read.

    The message at an offset of a queue, and when it was stored, in ms since epoch; without a
    message to name, `stored_ms` is None, and the queue began at the offset.
    """

    queue_id: int
    offset: int
    stored_ms: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a stream is, with what identifies the topics it has read."""

    offsets: Mapping[Queue, int]
    marks: Mapping[Place, Mark] = field(default_factory=dict)
    starts: Mapping[Queue, int] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Progress:
        """Return the progress in a checkpoint; before version 2 it was offsets alone.

        Raises:
            ValueError: it is neither.
        """
        if "version" not in document:
            return cls(flat(document))
        if document["version"] != VERSION:
            raise ValueError(f"progress of version {document['version']!r}, not {VERSION}")
        return cls(
            flat(table(document.get("offsets"))),
            _marks(table(document.get("marks") or {})),
            flat(table(document.get("starts") or {})),
        )

    def document(self) -> dict[str, Any]:
        """Return what a checkpoint holds; the same progress gives the same document."""
        found: dict[str, Any] = {"version": VERSION, "offsets": nested(self.offsets)}
        marks: dict[str, dict[str, Any]] = {}
        for place in sorted(self.marks):
            mark = self.marks[place]
            marks.setdefault(place.topic, {})[place.broker_name] = {
                "queue": mark.queue_id,
                "offset": mark.offset,
                "stored": mark.stored_ms,
            }
        if marks:
            found["marks"] = marks
        if self.starts:
            found["starts"] = nested(self.starts)
        return found


def place_of(queue: Queue) -> Place:
    return Place(queue.topic, queue.broker_name)


def _marks(document: Mapping[str, Any]) -> dict[Place, Mark]:
    found = {}
    for topic, brokers in document.items():
        for broker_name, mark in table(brokers).items():
            stored = table(mark).get("stored")
            found[Place(topic, broker_name)] = Mark(
                whole(mark.get("queue"), least=0),
                whole(mark.get("offset"), least=0),
                None if stored is None else whole(stored, least=0),
            )
    return found
