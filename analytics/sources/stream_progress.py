"""Progress of a `rocketmq` stream, as Spark stores it in a checkpoint.

    {"version": 2,
     "offsets": {"orders": {"broker-a": {"0": 23, "1": 40}}},
     "marks": {"orders": {"broker-a": {"queue": 1, "offset": 39, "stored": 1795251442000}}},
     "starts": {"bills": {"broker-a": {"0": 7}}}}

`offsets` are where the next batch begins. A mark identifies a message of a topic on a broker, with
its store time: a recreated topic has a different message at that offset, or no message. `starts`
are the queues that the batch read from a different offset than the previous progress: new queues,
and queues of a recreated topic.
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
    """A message that identifies a topic on a broker.

    It is a queue, an offset and the store time in ms since epoch. Without a message, `stored_ms` is
    None, and the offset is the beginning of the queue.
    """

    queue_id: int
    offset: int
    stored_ms: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    """The position of a stream, with marks that identify the topics that it has read."""

    offsets: Mapping[Queue, int]
    marks: Mapping[Place, Mark] = field(default_factory=dict)
    starts: Mapping[Queue, int] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Progress:
        """Return the progress in a checkpoint; before version 2, the checkpoint had only offsets.

        Raises:
            ValueError: the format is unknown.
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
        """Return the content of a checkpoint; equal progress gives an equal document."""
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
