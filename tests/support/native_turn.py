"""A broker's sends and pulls with the compiled turn, and a count of requests it handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.config.loading import build
from broker_core.config.update import update
from tests.support import send_frames
from tests.support.twins import Twin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker_core.remoting.connection import Connection
    from broker_core.remoting.deferred_answer import DeferredAnswer
    from broker_core.remoting.plain_requests import PlainRequests
    from broker_core.store.acknowledge import Acknowledgement

TOPIC = "Orders"


class Counting:
    """Counts the requests that a turn handles."""

    def __init__(self, turn: PlainRequests) -> None:
        self._turn = turn
        self.answers = 0

    @property
    def fallbacks(self) -> dict[str, int]:
        return self._turn.fallbacks

    @property
    def served_bytes(self) -> int:
        return self._turn.served_bytes

    def protocol_of(self, connection: Connection) -> Connection:
        return connection

    def serve(self, *parts: Any, **more: Any) -> bytes | DeferredAnswer | None:
        answers = self._turn.serve(*parts, **more)
        if answers is None:
            self.answers += 1
        elif isinstance(answers, bytes):
            self.answers += len(send_frames.frames_in(answers))
        else:
            self.answers += answers.requests
        return answers


async def a_twin(**keys: object) -> AsyncIterator[Twin]:
    table = {
        "storePathRootDir": "/data",
        "mappedFileSizeCommitLog": 1 << 20,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
        **keys,
    }
    configuration, errors = build({key: str(value) for key, value in table.items()})
    assert not errors
    twin = Twin(configuration, is_native=True)
    if twin.wire.plain_requests is not None:
        twin.wire.plain_requests = Counting(twin.wire.plain_requests)
    await twin.load(TOPIC)
    yield twin
    await twin.shutdown()


def a_send(opaque: int = 1, properties: str = "", body: bytes = b"hello") -> bytes:
    return send_frames.send(send_frames.fields_of(TOPIC, 0, properties), body, opaque)


async def served(twin: Twin, data: bytes) -> int:
    """Feed bytes; return how many of their requests the compiled turn handled."""
    turn: Any = twin.wire.plain_requests
    before = turn.answers
    await twin.feed(data)
    count: int = turn.answers - before
    return count


def change(twin: Twin, key: str, value: str) -> None:
    """Change a key of the running broker, as LiveUpdate does."""
    configuration = twin.foundation.configuration
    assert update(configuration, {key: value}) == [key]
    twin.send.reconfigure(configuration.store.max_message_size)


class Terms:
    """One slave."""

    slaves = 1
    timeout_s = 3.0
    fall_behind_max = 1 << 28


def with_slave(twin: Twin) -> Acknowledgement:
    """Make a twin a master with one slave that is fully caught up."""
    store = twin.parts.store
    store.take_role(is_slave=False, terms=Terms())
    store.acknowledge.replicated(store.max_commit_log_offset)
    return store.acknowledge
