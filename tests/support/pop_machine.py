"""Compares the POP engine with a model under random pops, acknowledgements and kills.

The model tracks the consumer and the end of each lease. A message is never leased to two consumers
at a time, an ordered group receives each queue in order, and finally every message is acknowledged
or a dead letter.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from broker_core.message.subscription import SubscriptionGroupConfig
from broker_core.pop.checkpoint import Handle
from broker_core.pop.results import Outcome
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tests.support.lease_store import TOPIC, Leased

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.support.lease_store import Lease

QUEUES = 2
RETRIES_MAX = 2
MANY, ORDERED = "G", "O"
ROUNDS_MAX = 200
counts = st.integers(1, 6)
times_ms = st.sampled_from([0, 1, 500, 1_000, 3_000])
picks = st.integers(0, 1 << 16)


class PopMachine(RuleBasedStateMachine):
    """Two groups, one of them ordered, on one topic, over several runs of the broker."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._clock = ManualClock()
        self._storage = FaultyStorage()
        self._numbers = itertools.count()
        self._sent: dict[str, int] = {}
        self._in_flight: dict[tuple[str, str], tuple[Lease, float]] = {}
        self._acked: dict[str, set[str]] = {MANY: set(), ORDERED: set()}
        self._forgotten: dict[str, set[str]] = {MANY: set(), ORDERED: set()}
        """Messages whose acknowledgement a power cut may have undone."""
        self._leased: Leased
        self._run(self._start())

    def _run(self, coroutine: Coroutine[object, object, None]) -> None:
        self._runner.run(coroutine)

    async def _start(self) -> None:
        self._leased = Leased(
            self._clock, self._storage, queues=QUEUES, retry_max_times=RETRIES_MAX
        )
        await self._leased.start()
        if ORDERED not in self._leased.groups.table:
            self._leased.groups.put(
                SubscriptionGroupConfig(group_name=ORDERED, retry_max_times=RETRIES_MAX)
            )
            await self._leased.persist()

    @rule(queue_id=st.integers(0, QUEUES - 1), count=counts)
    def send(self, queue_id: int, count: int) -> None:
        async def run() -> None:
            for _ in range(count):
                body = f"m{next(self._numbers)}"
                self._sent[body] = queue_id
                self._leased.send(body.encode(), queue_id)

        self._run(run())

    @rule(count=counts, invisible_ms=times_ms, queue_id=st.integers(-1, QUEUES - 1))
    def pop(self, count: int, invisible_ms: int, queue_id: int) -> None:
        async def run() -> None:
            self._take(MANY, self._leased.pop(count, invisible_ms, init_mode=0, queue_id=queue_id))

        self._run(run())

    @rule(
        count=counts,
        invisible_ms=times_ms,
        attempt_id=st.sampled_from([None, None, "a", "b"]),
        queue_id=st.integers(0, QUEUES - 1),
    )
    def pop_in_order(
        self, count: int, invisible_ms: int, attempt_id: str | None, queue_id: int
    ) -> None:
        async def run() -> None:
            order = self._leased.engine.orders.get((ORDERED, TOPIC, queue_id))  # type: ignore[call-overload]
            is_again = order is not None and attempt_id and order.attempt_id == attempt_id
            if is_again:
                self._release(queue_id)
            leases = self._leased.pop(
                count,
                invisible_ms,
                group=ORDERED,
                is_ordered=True,
                init_mode=0,
                queue_id=queue_id,
                attempt_id=attempt_id,
                retries_max=RETRIES_MAX,
            )
            self._take(ORDERED, leases)
            self._check_order(leases, queue_id)

        self._run(run())

    @rule(pick=picks)
    def acknowledge(self, pick: int) -> None:
        async def run() -> None:
            held = self._pick(pick)
            if held is not None:
                self._acknowledge(*held)

        self._run(run())

    @rule(pick=picks, invisible_ms=times_ms)
    def change_time(self, pick: int, invisible_ms: int) -> None:
        async def run() -> None:
            held = self._pick(pick)
            if held is None:
                return
            (group, body), lease = held
            engine, now = self._leased.engine, self._clock.monotonic()
            if group == ORDERED:
                changed = engine.change_invisible_ordered(
                    lease.key, lease.handle.pop_time_ms, lease.offset, invisible_ms
                )
            else:
                changed = engine.change_invisible(
                    lease.key, lease.handle, lease.offset, invisible_ms
                )
                if changed.outcome is Outcome.DONE:
                    lease.handle = Handle(lease.offset, changed.pop_time_ms)
            if changed.outcome is Outcome.DONE:
                self._in_flight[group, body] = lease, now + invisible_ms / 1000
            else:
                assert self._in_flight[group, body][1] <= now

        self._run(run())

    @rule(milliseconds=st.sampled_from([1, 10, 400, 1_000, 5_000]))
    def pass_time(self, milliseconds: int) -> None:
        self._run(self._leased.after(milliseconds))

    @rule()
    def write_tables(self) -> None:
        self._run(self._leased.persist())

    @rule(is_power_cut=st.booleans(), chance=st.integers(0, 3))
    def kill(self, is_power_cut: bool, chance: int) -> None:
        if chance:
            return  # Each run has a minimum length.

        async def run() -> None:
            old = self._leased
            if is_power_cut:
                self._storage = self._storage.cut_power()
                self._in_flight.clear()
                for group, acked in self._acked.items():
                    self._forgotten[group].update(acked)
            else:
                self._storage = self._storage.crash()
            await old.revival.shutdown()
            await old.store.shutdown()
            await self._start()
            if is_power_cut:
                self._forget_lost()

        self._run(run())

    def teardown(self) -> None:
        try:
            self._run(self._drain())
            self._run(self._leased.stop())
        finally:
            self._runner.close()

    async def _drain(self) -> None:
        """Acknowledge messages until the queue is empty, then check that all messages arrived."""
        for _ in range(ROUNDS_MAX):
            await self._leased.after(5_000)
            found = self._leased.pop(init_mode=0)
            self._take(MANY, found)
            for queue_id in range(QUEUES):
                more = self._leased.pop(
                    group=ORDERED,
                    is_ordered=True,
                    init_mode=0,
                    queue_id=queue_id,
                    retries_max=RETRIES_MAX,
                )
                self._take(ORDERED, more)
                self._check_order(more, queue_id)
                found += more
            for lease in found:
                group = lease.key.group
                self._acknowledge((group, lease.body.decode()), lease)
            if not found:
                break
        for group in (MANY, ORDERED):
            dead = {each.body.decode() for each in self._leased.stored(f"%DLQ%{group}")}
            assert set(self._sent) <= self._acked[group] | dead, group
        engine = self._leased.engine
        assert (engine.leases.count, engine.leases.byte_count, len(engine.leases)) == (0, 0, 0)
        assert not engine.orders

    def _take(self, group: str, leases: list[Lease]) -> None:
        now = self._clock.monotonic()
        for lease in leases:
            body = lease.body.decode()
            _, until = self._in_flight.get((group, body), (None, 0.0))
            assert until <= now, f"{body} is with two consumers of {group}"
            assert body not in self._acked[group] - self._forgotten[group], (
                f"{body} is redelivered to {group}: {lease.key} {lease.offset}"
            )
            self._acked[group].discard(body)
            self._in_flight[group, body] = lease, self._due(lease)

    def _due(self, lease: Lease) -> float:
        engine = self._leased.engine
        if lease.key.group == ORDERED:
            return engine.orders[lease.key].due[lease.offset]
        checkpoint = engine.leases.find(lease.key, lease.handle)
        assert checkpoint is not None
        return checkpoint.due

    def _check_order(self, leases: list[Lease], queue_id: int) -> None:
        """Check that a batch starts with the first open message and has no gap."""
        if not leases:
            return
        offsets = [lease.offset for lease in leases]
        assert offsets == sorted(set(offsets))
        dead = {each.body.decode() for each in self._leased.stored(f"%DLQ%{ORDERED}")}
        done = self._acked[ORDERED] | self._forgotten[ORDERED] | dead
        open_ones = [
            body for body, where in self._sent.items() if where == queue_id and body not in done
        ]
        # Messages that a power cut may have restored can be in between.
        bodies = [lease.body.decode() for lease in leases]
        got = [body for body in bodies if body not in self._forgotten[ORDERED]]
        assert got == open_ones[: len(got)]

    def _release(self, queue_id: int) -> None:
        """Drop the leases of a consumer that lost the answer and repeats its request."""
        for group, body in list(self._in_flight):
            if group == ORDERED and self._sent[body] == queue_id:
                del self._in_flight[group, body]

    def _pick(self, pick: int) -> tuple[tuple[str, str], Lease] | None:
        if not self._in_flight:
            return None
        key = sorted(self._in_flight)[pick % len(self._in_flight)]
        return key, self._in_flight[key][0]

    def _acknowledge(self, key: tuple[str, str], lease: Lease) -> None:
        group, body = key
        if group == ORDERED:
            outcome = self._leased.ack_ordered(lease)
        else:
            (outcome,) = self._leased.ack(lease)
        if outcome is Outcome.DONE:
            self._acked[group].add(body)
            self._forgotten[group].discard(body)
        else:
            assert self._in_flight[key][1] <= self._clock.monotonic(), f"{key} is leased still"
        self._in_flight.pop(key, None)

    def _forget_lost(self) -> None:
        """Drop unflushed messages, which a power cut deletes."""
        there = {
            each.body.decode()
            for queue_id in range(QUEUES)
            for each in self._leased.stored(TOPIC, queue_id)
        }
        for body in self._sent.keys() - there:
            del self._sent[body]
