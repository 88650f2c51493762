"""A store and a model of it; hypothesis runs both through puts, flushes, deletions and crashes.

The model is a list of puts. A crash may come between any two lines of the store's code. A killed
process leaves everything that it wrote; a power cut leaves flushed data and any part of the rest,
sector by sector.

Everything runs in one thread, so that an example repeats.
"""

from __future__ import annotations

import asyncio
import errno
import random
import struct
import sys
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from broker_core.formats import record
from broker_core.message import properties as message_properties
from broker_core.store import flush, message_store
from broker_core.store.message_store import MessageStore
from broker_core.store.results import PutMessageStatus
from tests.support.builders import HOST, put, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tests.support.time_steps import pass_time
from tools.faults.crash_points import Biased, Crash, Image, Tripwire
from tools.faults.inline import InlineExecutor, InlineLoop, LoopFlushThread
from tools.faults.store_comparison import (
    EVER,
    Entry,
    Found,
    Place,
    check_files,
    check_key,
    check_queue,
    read_everything,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from broker_core.config.store import StoreConfig
    from broker_core.store.results import PutBatchResult, PutMessageResult, RecoveryReport


LOG_FILE_SIZE = 16 * 1024
CONFIG = {
    "mapped_file_size_consume_queue_ext": 512,
    "mapped_file_size_commit_log": LOG_FILE_SIZE,
    "mapped_file_size_consume_queue": 20 * 20,
    "max_hash_slot_num": 20,
    "max_index_num": 200,
}
TOPICS = ("red", "green", "%RETRY%blue")
QUEUES = 2
KEYS = ("k0", "k1", "k2", "k3")
OVERHEAD_MAX = 200
EXPIRY_MS = 75_000
BATCH_HEAD = struct.Struct(">iiiii")
STALE = record.MESSAGE_MAGIC_BYTES + b"\0\0\0\x01"
"""In a body of these, every byte looks like the start of a record."""


crashes = st.builds(
    Crash,
    line=st.one_of(st.integers(1, 80), st.integers(1, 400), st.integers(1, 4000)),
    is_power_cut=st.booleans(),
    seed=st.integers(0, 1 << 16),
    kept=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
)
maybe = st.one_of(st.none(), st.none(), st.none(), crashes)
topics = st.sampled_from(TOPICS)
queue_ids = st.integers(0, QUEUES - 1)
sizes = st.one_of(st.integers(0, 40), st.integers(0, 1500))
fillers = st.sampled_from([b".", b"\0", STALE])
key_sets = st.frozensets(st.sampled_from(KEYS), max_size=3)


class StoreMachine(RuleBasedStateMachine):
    """One store over several runs. Each rule applies the same step to the store and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sync = False
        self.config: StoreConfig
        self.store: MessageStore
        self.loop = InlineLoop()
        self.clock = ManualClock()
        self.storage = FaultyStorage()
        self.live: list[Entry] = []
        self.dead: list[Entry] = []
        """Messages of deleted topics: the log still has them, and a key may find them."""
        self.next_offset: dict[Place, int] = {}
        self.holes: defaultdict[Place, set[int]] = defaultdict(set)
        """Offsets of messages lost by a power cut."""
        self.number = 0
        self.damaged: set[int] = set()
        self.patches = ExitStack()
        enter = self.patches.enter_context
        for module in (message_store, flush):
            enter(mock.patch.object(module, "ThreadPoolExecutor", InlineExecutor))
        enter(mock.patch.object(flush, "FlushThread", LoopFlushThread))

    @initialize(is_sync=st.booleans(), is_extended=st.booleans(), is_guarded=st.booleans())
    def begin(self, is_sync: bool, is_extended: bool, is_guarded: bool) -> None:
        self.is_sync = is_sync
        self.config = store_config(
            **CONFIG,
            flush_disk_type="SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
            enable_consume_queue_ext=is_extended,
            enabled_append_prop_crc=is_guarded,
        )
        self.store = self.new_store(self.storage)
        self.store.load()
        self.run(self.store.start())

    def teardown(self) -> None:
        try:
            if hasattr(self, "store") and sys.exc_info()[0] is None:
                self.check()
                self.run(self.store.shutdown())
                if not self.damaged:
                    check_files(self.storage, self.config.store_path_root_dir)
        finally:
            self.abandon()
            self.loop.close()
            self.patches.close()

    @rule(
        topic=topics,
        queue_id=queue_ids,
        size=sizes,
        filler=fillers,
        keys=key_sets,
        waits=st.booleans(),
        crash=maybe,
    )
    def put(
        self,
        topic: str,
        queue_id: int,
        size: int,
        filler: bytes,
        keys: frozenset[str],
        waits: bool,
        crash: Crash | None,
    ) -> None:
        body = self.body(size, filler)
        with self.crashing(crash):
            self.put_one(topic, queue_id, body, keys, waits=waits)

    @rule(topic=topics, queue_id=queue_ids, room_left=st.integers(0, 120), crash=maybe)
    def fill_the_file(self, topic: str, queue_id: int, room_left: int, crash: Crash | None) -> None:
        """Put a message that leaves room_left bytes in the log's file, if enough are free."""
        body = self.body(0, b".")
        room = LOG_FILE_SIZE - self.store.max_commit_log_offset % LOG_FILE_SIZE
        overhead = record.OVERHEAD_V4 + len(topic) + len(f"UNIQ_KEY\x01U{self.number}")
        body = body.ljust(max(room - room_left - overhead, 0), b".")
        with self.crashing(crash):
            self.put_one(topic, queue_id, body, frozenset())

    @rule(
        topic=topics,
        queue_id=queue_ids,
        sizes=st.lists(sizes, min_size=1, max_size=30),
        keys=key_sets,
        waits=st.booleans(),
        crash=maybe,
    )
    def put_batch(
        self,
        topic: str,
        queue_id: int,
        sizes: list[int],
        keys: frozenset[str],
        waits: bool,
        crash: Crash | None,
    ) -> None:
        bodies = [self.body(size, b".") for size in sizes]
        with self.crashing(crash):
            self.put_many(topic, queue_id, bodies, keys, waits=waits)

    @rule(
        topic=topics,
        queue_id=queue_ids,
        count=st.integers(1, 30),
        call=st.sampled_from(["allocate", "open", "set_size", "sync_directory"]),
        nth=st.integers(1, 3),
        error=st.sampled_from([errno.ENOSPC, errno.EIO]),
        crash=maybe,
    )
    def put_without_space(
        self,
        topic: str,
        queue_id: int,
        count: int,
        call: str,
        nth: int,
        error: int,
        crash: Crash | None,
    ) -> None:
        """Put on a full disk: the store rejects the whole put, or stores it anyway."""
        bodies = [self.body(200, b".") for _ in range(count)]
        storage = self.storage
        storage.fail(call, nth=nth, error=error)
        with self.crashing(crash):
            if count == 1:
                self.put_one(topic, queue_id, bodies[0], frozenset(), may_fail=True)
            else:
                self.put_many(topic, queue_id, bodies, frozenset(), may_fail=True)
            storage.heal(call)
        self.run(pass_time(self.clock, 11_000))
        assert self.store.is_writable

    @rule(crash=maybe)
    def flush(self, crash: Crash | None) -> None:
        with self.crashing(crash):
            assert self.run(self.store.flush())

    @rule(milliseconds=st.sampled_from([1, 400, 1_100, 11_000, 70_000]), crash=maybe)
    def let_time_pass(self, milliseconds: int, crash: Crash | None) -> None:
        """Advance the clock: interval flushes, checkpoints, disk checks."""
        with self.crashing(crash):
            self.run(pass_time(self.clock, milliseconds))

    @rule(crash=maybe)
    def expire(self, crash: Crash | None) -> None:
        """Expire all files but the last; flushed ones are deleted."""
        with self.crashing(crash):
            self.store.delete_expired_files_soon()
            self.run(pass_time(self.clock, EXPIRY_MS))

    @rule(topic=topics, crash=maybe)
    def delete_topic(self, topic: str, crash: Crash | None) -> None:
        with self.crashing(crash, deletes=topic):
            self.call(lambda: self.store.delete_topic(topic))
            self.forget(topic)

    @rule(crash=crashes)
    def end_suddenly(self, crash: Crash) -> None:
        with self.crashing(crash._replace(line=1)):
            pass

    @rule(crash=maybe, cut=st.one_of(st.none(), st.integers(0, 1 << 16)))
    def restart(self, crash: Crash | None, cut: int | None) -> None:
        """Stop cleanly; with a seed, cut the power right afterwards."""
        with self.crashing(crash):
            self.run(self.store.shutdown())
        if crash is not None:
            return
        if cut is not None:
            self.storage = self.storage.cut_power(random.Random(cut))
        self.abandon()
        self.store = self.new_store(self.storage)
        report = self.store.load()
        assert report.clean_exit
        assert (report.truncated_bytes, report.units_written) == (0, 0)
        self.run(self.store.start())
        self.check()

    @rule(crash=crashes, topic=topics)
    def lose_the_disk(self, crash: Crash, topic: str) -> None:
        """Let a flush fail: the store guarantees nothing until a restart."""
        self.run(pass_time(self.clock, 1))
        self.storage.fail("fdatasync")
        durable_to = self.store.flushed_where
        is_dirty = self.store.max_commit_log_offset > durable_to
        assert self.run(self.store.flush()) is not is_dirty
        if is_dirty:
            refused = self.call(lambda: put(self.store, topic, 0, b"refused"))
            assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
            assert not self.store.is_writable
            assert self.store.flushed_where == durable_to
            self.check(limit=durable_to)
        with self.crashing(crash._replace(line=1)):
            pass

    @rule()
    def look(self) -> None:
        self.check()

    def new_store(self, storage: FaultyStorage) -> MessageStore:
        return MessageStore(self.config, self.clock, storage, HOST)

    def run(self, awaitable: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(_awaited(awaitable))

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function of the store from within the loop."""
        return self.run(_called(function))

    def body(self, size: int, filler: bytes) -> bytes:
        self.number += 1
        return b"%d:" % self.number + (filler * (size // len(filler) + 1))[:size]

    def put_one(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        keys: frozenset[str],
        *,
        waits: bool = False,
        may_fail: bool = False,
    ) -> None:
        uniq_key = f"U{self.number}"
        text = " ".join(sorted(keys))
        result = self.call(
            lambda: put(self.store, topic, queue_id, body, keys=text, uniq_key=uniq_key)
        )
        if not self.is_refused(result, [body], may_fail=may_fail):
            places = [result.commit_log_offset]
            self.note(topic, queue_id, places, [body], keys | {uniq_key}, result, waits=waits)

    def put_many(
        self,
        topic: str,
        queue_id: int,
        bodies: list[bytes],
        keys: frozenset[str],
        *,
        waits: bool = False,
        may_fail: bool = False,
    ) -> None:
        uniq_key = f"U{self.number}"
        properties = {"UNIQ_KEY": uniq_key} | ({"KEYS": " ".join(sorted(keys))} if keys else {})
        text = message_properties.encode(properties).encode()
        data = b"".join(
            BATCH_HEAD.pack(BATCH_HEAD.size + len(body) + 2 + len(text), 0, 0, 0, len(body))
            + body
            + len(text).to_bytes(2, "big")
            + text
            for body in bodies
        )
        result = self.call(
            lambda: self.store.put_batch(
                topic, queue_id, data, "", sys_flag=0, born_timestamp=1, born_host=HOST
            )
        )
        if not self.is_refused(result, bodies, may_fail=may_fail):
            places = result.commit_log_offsets
            self.note(topic, queue_id, places, bodies, keys | {uniq_key}, result, waits=waits)

    def is_refused(
        self, result: PutMessageResult | PutBatchResult, bodies: list[bytes], *, may_fail: bool
    ) -> bool:
        """Whether the store rejected a put, as it must if the message fits into no file."""
        if result.status is PutMessageStatus.PUT_OK:
            return False
        is_large = sum(len(body) + OVERHEAD_MAX for body in bodies) > LOG_FILE_SIZE
        assert may_fail or is_large, result.status
        return True

    def note(
        self,
        topic: str,
        queue_id: int,
        places: list[int],
        bodies: list[bytes],
        keys: frozenset[str],
        result: PutMessageResult | PutBatchResult,
        *,
        waits: bool,
    ) -> None:
        assert result.queue_offset == self.next_offset.get((topic, queue_id), 0)
        assert places[0] >= max((e.end for e in [*self.live, *self.dead]), default=0)
        ends = [*places[1:], result.commit_log_offset + result.wrote_size]
        for number, (start, end, body) in enumerate(zip(places, ends, bodies, strict=True)):
            queue_offset = result.queue_offset + number
            size = end - start
            time = result.store_timestamp
            self.live.append(Entry(topic, queue_id, queue_offset, start, size, body, keys, time))
        self.next_offset[topic, queue_id] = result.queue_offset + len(bodies)
        waiting = (
            self.call(lambda: self.store.acknowledge.until_acknowledged(result)) if waits else None
        )
        if waiting is not None:
            assert self.run(waiting) is PutMessageStatus.PUT_OK
            assert self.store.flushed_where >= ends[-1]

    def forget(self, topic: str) -> None:
        self.dead += [e for e in self.live if e.topic == topic]
        self.live = [e for e in self.live if e.topic != topic]
        self.next_offset = {p: n for p, n in self.next_offset.items() if p[0] != topic}
        for place in [place for place in self.holes if place[0] == topic]:
            del self.holes[place]

    def drop_expired(self) -> None:
        """Apply the deletion of old files to the model; it takes several runs."""
        first = self.store.min_commit_log_offset
        assert first % LOG_FILE_SIZE == 0
        assert first <= self.store.flushed_where
        self.live = [e for e in self.live if e.commit_log_offset >= first]

    def abandon(self) -> None:
        """End the tasks that a dead store left in the loop."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    @contextmanager
    def crashing(self, crash: Crash | None, *, deletes: str | None = None) -> Iterator[None]:
        """Run the block, crash somewhere in it and continue with the remaining files."""
        if crash is None:
            yield
            return
        images: list[Image] = []
        self.drop_expired()
        before = list(self.live)
        store = self.store
        with Tripwire(crash.line, lambda: images.append(self.capture(store, crash))):
            yield
        self.abandon()
        self.recover(images[0], before, crash, deletes)

    def capture(self, store: MessageStore, crash: Crash) -> Image:
        if crash.is_power_cut:
            storage = self.storage.cut_power(Biased(crash.seed, crash.kept))
        else:
            storage = self.storage.crash()
        return Image(storage, crash.is_power_cut, store.flushed_where)

    def recover(self, image: Image, before: list[Entry], crash: Crash, deletes: str | None) -> None:
        """Start on the files after a crash, check them, and continue with them."""
        last_first = self.store.min_commit_log_offset
        self.storage = image.storage
        self.store = self.new_store(self.storage)
        if crash.seed % 4 == 0:
            # The start crashes, too.
            images: list[Image] = []
            with Tripwire(
                crash.seed * 7 % 2000 + 1, lambda: images.append(self.capture(self.store, crash))
            ):
                self.store.load()
            self.store.close()
            self.storage = images[0].storage
            self.store = self.new_store(self.storage)
        report = self.store.load()
        first = self.store.min_commit_log_offset
        assert first <= last_first
        possible = {e.where: e for e in [*before, *self.live]}
        found = read_everything(self.store)
        for where, body in found.items():
            assert where in possible, f"unknown message {where}"
            assert possible[where].body == body
        sure = [
            e
            for e in before
            if e.commit_log_offset >= first
            and (not image.is_power_cut or e.end <= image.durable_to)
        ]
        lost = [e for e in sure if e.where not in found]
        if lost and deletes is not None and not any(where[0] == deletes for where in found):
            lost = [e for e in lost if e.topic != deletes]
            self.forget(deletes)
        assert lost == []
        damaged = {d.offset_from for d in report.damaged}
        assert image.is_power_cut or damaged <= self.damaged
        self.damaged |= damaged
        self.adopt([possible[where] for where in found], is_cut=image.is_power_cut)
        self.check_again(report, found)
        self.run(self.store.start())
        self.check()

    def adopt(self, found: list[Entry], *, is_cut: bool) -> None:
        """Update the model with the recovered messages."""
        end = self.store.max_commit_log_offset
        assert end >= max((e.end for e in found), default=0)
        known = dict(self.next_offset)
        self.live = sorted(found, key=lambda e: e.commit_log_offset)
        self.dead = [e for e in self.dead if e.end <= end and e not in found]
        self.next_offset.clear()
        for topic in self.store.topics():
            for queue_id in self.store.queue_ids(topic):
                place = topic, queue_id
                low = self.store.min_offset_in_queue(topic, queue_id)
                high = self.store.max_offset_in_queue(topic, queue_id)
                there = {e.queue_offset for e in found if e.place == place}
                holes = set(range(low, high)) - there
                assert there <= set(range(low, high))
                assert is_cut or holes <= self.holes[place]
                self.holes[place] = holes
                self.next_offset[place] = high
        for place, count in known.items():
            assert self.next_offset.get(place, 0) <= count

    def check_again(self, report: RecoveryReport, found: Found) -> None:
        """Check that a second start finds everything in order."""
        store = self.new_store(self.storage.crash())
        again = store.load()
        assert again.max_commit_log_offset == report.max_commit_log_offset
        assert (again.truncated_bytes, again.units_written) == (0, 0)
        assert {d[:2] for d in again.damaged} <= {d[:2] for d in report.damaged}
        assert read_everything(store) == found
        store.close()

    def check(self, *, limit: int | None = None) -> None:
        """Compare everything readable, up to a log offset, with the model."""
        self.drop_expired()
        store = self.store
        if limit is None:
            limit = store.flushed_where if self.is_sync else EVER
        visible = [e for e in self.live if e.end <= limit]
        dead = [e for e in self.dead if e.end <= limit]
        for place in {*self.next_offset, *((t, q) for t in TOPICS for q in range(QUEUES))}:
            next_offset = self.next_offset.get(place, 0) if limit == EVER else None
            expected = [e for e in visible if e.place == place]
            check_queue(store, place, expected, holes=self.holes[place], next_offset=next_offset)
        for topic in TOPICS:
            for key in KEYS:
                check_key(store, topic, key, visible, dead)
        for e in self.live[-20:]:
            found = store.look_message(e.commit_log_offset)
            assert (found is not None) == (e.end <= limit)
            assert found is None or record.decode(found).body == e.body
            check_key(store, e.topic, max(e.keys, key=len), visible, dead)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _called(function: Callable[[], Any]) -> Any:
    return function()
