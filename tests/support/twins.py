"""Two brokers' sends and pulls side by side: one with the compiled turn, one in pure Python.

Each has an in-memory store, one connection that a test feeds with bytes, and a stopped clock.
Both must show the same observable behaviour.
"""

from __future__ import annotations

import asyncio
import math
import random
import zlib
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from broker_core.clients.consumers import ConsumerMember
from broker_core.composition.clients import build_clients
from broker_core.composition.foundation import build_foundation
from broker_core.composition.native import build_plain_requests
from broker_core.composition.processors import build_consuming
from broker_core.composition.storage import build_storage, load_storage
from broker_core.config.loading import build
from broker_core.listening.peer_log import PeerLog
from broker_core.message.subscription import build_subscription
from broker_core.message.topic_config import TopicConfig
from broker_core.native import loading
from broker_core.processors.send import SendProcessor
from broker_core.processors.transaction import TransactionProcessor
from broker_core.processors.wrappers.latency import time_requests
from broker_core.protocol.codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.dispatch import Dispatcher
from broker_core.remoting.limits import RemotingLimits
from broker_core.remoting.wire import Wire
from broker_core.sending.dead_letters import DeadLetters
from broker_core.sending.detours import Detours
from broker_core.sending.placement import Placement
from broker_core.service import Service
from broker_core.store.reads import FRESH_BYTES
from tests.support import pull_frames
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from pathlib import Path

    from broker_core.config.configuration import Configuration
    from broker_core.processors.pull import PullProcessor
    from broker_core.remoting.dispatch import Handler

LISTENED = "Listened"
"""The topic with a waiting consumer."""
DISKS = {"queues", "dirty", "index"}
"""When time passes, the disk thread decides when queues and the index are written."""
TOPICS = ("Orders", "größe", LISTENED)
QUEUES = 4


async def settled() -> None:
    """Run the loop's ready callbacks."""
    for _ in range(4):
        await asyncio.sleep(0)


def is_compiled() -> bool:
    return loading.load({}).send_turn is not None


class SeenTransport(asyncio.Transport):
    """Records written data."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.1.2.3", 45678)})
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits; writes never wait here."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Do nothing; the test decides when bytes arrive."""

    def resume_reading(self) -> None:
        """Do nothing; the test decides when bytes arrive."""

    def close(self) -> None:
        self.closed = True

    abort = close


class WaitingClient:
    """A client that ignores messages."""

    remote_address = "10.9.9.9:1"
    is_writable = False
    is_open = True
    on_close: ClassVar[list[Any]] = []

    def oneway(self, command: object) -> None:
        """Drop the message."""

    def close(self) -> None:
        """Do nothing; no connection is open."""


class WaitingPull:
    """A parked pull that never completes and counts its attempts."""

    connection: Hashable = "consumer"
    group = "waiting"
    queue_offset = -1
    is_answerable = True

    def __init__(self) -> None:
        self.attempts = 0

    def attempt(self, *, is_last: bool) -> bool:
        self.attempts += 1
        return is_last


class Processors(NamedTuple):
    """The processors whose requests the compiled turn can handle."""

    send: SendProcessor
    pull: PullProcessor
    transaction: TransactionProcessor


class Twin:
    """`load`, `feed`, `shutdown`; inside a running loop."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        is_native: bool,
        peer: tuple[str, int] | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.storage = FaultyStorage()
        foundation = build_foundation(configuration, self.clock, self.storage)
        native = loading.load({loading.VARIABLE: str(int(is_native))})
        foundation = self.foundation = replace(foundation, native=native)
        self.parts = build_storage(foundation)
        self._tasks = Service()
        self._build_send()
        self.clients = build_clients(foundation, self.parts, None)
        self.pulls = build_consuming(foundation, self.parts, self.clients).pull
        self.transaction = TransactionProcessor(
            foundation.store_host,
            configuration.store.max_message_size,
            self.parts.transactions,
            self.parts.store,
            foundation.counted_log,
            None,
            foundation.role,
        )
        stats = self.parts.stats
        handlers: dict[int, Handler] = {
            RequestCode.SEND_MESSAGE: self.send.send_message,
            RequestCode.SEND_MESSAGE_V2: self.send.send_message_v2,
            RequestCode.SEND_BATCH_MESSAGE: self.send.send_batch_message,
            RequestCode.PULL_MESSAGE: self.pulls.pull_message,
            RequestCode.LITE_PULL_MESSAGE: self.pulls.pull_message,
            RequestCode.END_TRANSACTION: self.transaction.end_transaction,
        }
        time_requests(handlers, stats.put_latency, stats.get_latency)
        self.wire = Wire(
            dispatcher=Dispatcher(handlers),
            clock=self.clock,
            limits=RemotingLimits(),
            owner=self._tasks,
            peer_log=PeerLog(self.clock),
            on_made=lambda _: None,
            on_lost=lambda _: None,
            on_turn=self.parts.stats.put_latency.end_turn,
        )
        self.wire.plain_requests = build_plain_requests(
            foundation, self.parts, Processors(self.send, self.pulls, self.transaction)
        )
        self._peer = peer
        self.pull = WaitingPull()

    def _build_send(self) -> None:
        foundation, parts = self.foundation, self.parts
        config = foundation.configuration.broker
        self.send = SendProcessor(
            config,
            foundation.store_host,
            foundation.configuration.store.max_message_size,
            Placement(config, parts.topics, foundation.counted_log, self.clock),
            DeadLetters(parts.topics, parts.groups, foundation.counted_log),
            Detours(config, foundation.levels, parts.schedule, parts.timers, parts.transactions),
            parts.store,
            parts.stats,
            parts.sends,
            self.clock,
        )

    async def load(self, *topics: str) -> None:
        load_storage(self.foundation, self.parts)
        await self.parts.store.start()
        for topic in (*topics, LISTENED):
            await self.make_topic(topic)
        self._subscribe(topics)
        for queue_id in range(QUEUES):
            self.parts.parked_pulls.park(LISTENED, queue_id, self.pull, 1 << 40)
        self.connect()

    def _subscribe(self, topics: Sequence[str]) -> None:
        """Add a group with subscriptions: all of the first topic, two tags of others."""
        self.clients.consumers.register(
            WaitingClient(),
            pull_frames.SUBSCRIBED,
            ConsumerMember("client", "JAVA", 407, 0.0),
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_FIRST_OFFSET",
            [
                build_subscription(topic, "TagA || größe" if number else "*", pull_frames.VERSION)
                for number, topic in enumerate(topics)
            ],
            notify=False,
        )

    def connect(self) -> None:
        """Replace the connection with a new one."""
        self.connect_by(SeenTransport())

    def connect_by(self, transport: SeenTransport) -> None:
        """Open a connection that uses the given transport."""
        self.transport = transport
        self.connection = Connection(self.wire, self._peer)
        self.protocol = self.connection.protocol
        self.protocol.connection_made(self.transport)

    async def make_topic(self, topic: str, queues: int = QUEUES) -> None:
        self.parts.topics.put(
            TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
        )
        await self.parts.topics.writer.until_written(topic)

    async def feed(self, data: bytes) -> None:
        """Receive bytes and run the tasks they started."""
        self.receive(data)
        await settled()

    def receive(self, data: bytes) -> None:
        """Receive bytes."""
        done = 0
        while done < len(data) and not self.transport.closed:
            buffer = self.wire.receive_buffer
            piece = data[done : done + len(buffer)]
            buffer[: len(piece)] = piece
            self.protocol.buffer_updated(len(piece))
            done += len(piece)

    def seen(self) -> dict[str, Any]:
        """Return the observable state without changing it."""
        parts, files = self.parts, self.parts.store.files
        state = files.put_state
        stats, reads, recorder = parts.stats, parts.store.own_reads, parts.tracer.recorder
        assert reads is not None
        transactions = parts.transactions
        queues = [queue for each in files.queues.table.values() for queue in each.values()]
        return {
            "answers": bytes(self.transport.written),
            "closed": self.transport.closed,
            "kept": self.wire.kept_bytes,
            "in_flight": self.wire.in_flight,
            "log": zlib.crc32(memoryview(state.buffer)),
            "state": [getattr(state, name) for name in type(state).__slots__ if name != "buffer"],
            "queues": [
                (
                    queue.topic,
                    queue.queue_id,
                    queue.position,
                    queue.next_offset,
                    queue.max_offset,
                    queue.dirty,
                    zlib.crc32(memoryview(queue.buffer)),
                )
                for queue in queues
            ],
            "dirty": [(queue.topic, queue.queue_id) for queue in files.queues.dirty],
            "index": None if files.index is None else (files.index.room, files.index.waiting[:]),
            "sets": {
                name: {key: (item.value, item.times) for key, item in table.items()}
                for name, table in stats.sets.items()
            },
            "latency": (stats.put_latency.counts, stats.put_latency.served),
            "get_latency": stats.get_latency.counts,
            "got": (stats.got_total, reads.get_found_times, reads.get_miss_times),
            "transferred": reads.transferred_messages,
            "offsets": {key: dict(queues) for key, queues in parts.offsets.table.items()},
            "groups": list(parts.groups.table),
            "parked": len(parts.parked_pulls),
            "recorded": recorder.events_of(recorder.snapshot(-math.inf)),
            "attempts": self.pull.attempts,
            "undecided": [astuple(half) for half in transactions.pending.values()],
            "half_progress": (transactions.half_progress, transactions.span),
            "read_limit": parts.store.acknowledge.acknowledged_where,
        }

    async def shutdown(self) -> dict[Path, bytes]:
        """Shut down as a broker does; return the contents of its files."""
        self.connection.connection_lost(None)
        await self._tasks.shutdown()
        await self.parts.store.shutdown()
        return {
            path: bytes(inode.data)
            for path, inode in self.storage.files.items()
            if path.name != "topics.json"
        }


def configuration(**keys: object) -> Configuration:
    table = {
        "storePathRootDir": "/data",
        "autoCreateTopicEnable": "false",
        "maxMessageSize": 4500,
        "mappedFileSizeConsumeQueue": 60_000,
        "mappedFileSizeCommitLog": 1 << 20,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
        **keys,
    }
    configuration, errors = build({key: str(value) for key, value in table.items()})
    assert not errors, [str(error) for error in errors]
    return configuration


class Pair:
    """Both twins, fed the same bytes."""

    def __init__(self, configuration: Configuration, **more: Any) -> None:
        self.native = Twin(configuration, is_native=True, **more)
        self.python = Twin(configuration, is_native=False, **more)
        self._fed = 0

    async def __aenter__(self) -> Pair:
        for twin in (self.native, self.python):
            await twin.load(*TOPICS)
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        native, python = [await twin.shutdown() for twin in (self.native, self.python)]
        if kind is not None:
            return
        assert native.keys() == python.keys()
        assert [path for path in native if native[path] != python[path]] == []

    async def feed(self, data: bytes, *, settle: bool = True) -> None:
        self._fed += 1
        for twin in (self.native, self.python):
            # A send to any queue picks a random one.
            random.seed(self._fed)
            twin.receive(data)
        if settle:
            await settled()

    def reconnect(self) -> None:
        for twin in (self.native, self.python):
            twin.connect()

    def same(self) -> dict[str, Any]:
        """Return the observable state of both, which must be equal."""
        native, python = self.native.seen(), self.python.seen()
        for name, value in native.items():
            assert value == python[name], name
        return native

    def keep_in_memory(
        self,
        memory_bytes: int,
        *,
        is_resident: bool,
        fresh_bytes: int = FRESH_BYTES,
        is_absent: Callable[[int], bool] | None = None,
    ) -> None:
        """Set how much of the log's end readers treat as in memory, and whether the rest is, too.

        For pages before the last fresh_bytes the kernel reports which are absent.
        """
        for twin in (self.native, self.python):
            reader = twin.parts.store.own_reads
            assert reader is not None
            reader.memory_bytes, reader.fresh_bytes = memory_bytes, fresh_bytes
            twin.storage.is_resident, twin.storage.is_absent = is_resident, is_absent

    def advance_ms(self, milliseconds: int) -> None:
        for twin in (self.native, self.python):
            twin.clock.advance_ms(milliseconds)
