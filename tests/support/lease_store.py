"""A store with the POP engine, whose clock the test controls."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.clock import SteadyClock
from broker_core.config.broker import BrokerConfig
from broker_core.config.limits import LIMITS
from broker_core.delivery.parked_pulls import ParkedPulls
from broker_core.formats.record import decode
from broker_core.message.subscription import SubscriptionGroupConfig
from broker_core.message.topic_config import TopicConfig
from broker_core.metadata.consumer_offsets import ConsumerOffsets
from broker_core.metadata.document import Document
from broker_core.metadata.subscription_groups import SubscriptionGroups
from broker_core.metadata.topics import Topics
from broker_core.pop.checkpoint import Handle
from broker_core.pop.engine import PopEngine
from broker_core.pop.leases import Leases
from broker_core.pop.orders import Orders
from broker_core.pop.pollers import Pollers
from broker_core.pop.results import PopRequest, PopResult
from broker_core.pop.revival import Revival
from broker_core.pop.revive_log import ReviveLog
from broker_core.steps import run_to_end
from tests.support.builders import a_store, put, read_all, store_config

if TYPE_CHECKING:
    from typing import Any

    from broker_core.config.limits import LimitsConfig
    from broker_core.message.message import MessageExt
    from broker_core.pop.results import LeasedBatch, Outcome
    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage

TOPIC, GROUP = "T", "G"
RETRY, DLQ = "%RETRY%G_T", "%DLQ%G"


class Lease:
    """A leased message with its handle."""

    def __init__(self, batch: LeasedBatch, index: int, pop_time_ms: int) -> None:
        self.key = batch.key
        self.handle = Handle(batch.start_offset, pop_time_ms)
        self.offset = batch.offsets[index]
        self.times = batch.times[index]
        self.message: MessageExt = decode(batch.records[index])

    @property
    def body(self) -> bytes:
        return self.message.body


class Leased:
    """One run of a broker; a second one on the same storage is a restart."""

    def __init__(
        self,
        clock: ManualClock,
        storage: FaultyStorage,
        *,
        queues: int = 1,
        limits: LimitsConfig = LIMITS,
        retry_max_times: int = 16,
        **store_keys: Any,
    ) -> None:
        self.clock, self.storage = clock, storage
        keys = {
            "mapped_file_size_commit_log": 1 << 20,
            "mapped_file_size_consume_queue": 200_000,
            **store_keys,
        }
        self.parked_pulls = ParkedPulls(clock, limits)
        self.store = a_store(
            clock, storage, store_config(**keys), on_arrival=self.parked_pulls.on_arrival
        )
        config = BrokerConfig()
        directory = Path("/store/config")
        self.topics = Topics(config, clock, Document(storage, directory / "topics.json"), limits)
        self.groups = SubscriptionGroups(
            config, clock, Document(storage, directory / "subscriptionGroup.json"), limits
        )
        self.offsets = ConsumerOffsets(Document(storage, directory / "consumerOffset.json"))
        self._queues, self._retry_max_times = queues, retry_max_times
        orders = Orders()
        leases = Leases(limits)
        self.log = ReviveLog(
            "DefaultCluster",
            "broker-a",
            self.store,
            self.topics,
            self.offsets,
            leases,
            orders,
            clock,
            SteadyClock(clock),
        )
        self.offsets.note_progress = self.log.note_progress
        self.offsets.until_durable = self.store.flush
        self.engine = PopEngine(
            self.store, self.topics, self.offsets, leases, orders, self.log, clock
        )
        self.revival = Revival(self.engine, self.store, self.topics, self.groups, clock)
        self.pollers = Pollers(self.parked_pulls, clock, limits)
        self.engine.on_unblocked = self.revival.on_unblocked = self.pollers.wake

    async def start(self) -> None:
        self.store.load()
        self.topics.load()
        self.groups.load()
        self.offsets.load()
        if TOPIC not in self.topics.table:
            self.topics.put(
                TopicConfig(
                    topic_name=TOPIC,
                    read_queue_nums=self._queues,
                    write_queue_nums=self._queues,
                )
            )
        if GROUP not in self.groups.table:
            self.groups.put(
                SubscriptionGroupConfig(group_name=GROUP, retry_max_times=self._retry_max_times)
            )
        await self.store.start()
        # In the broker's order: offsets past the ends of their queues first, then the leases.
        if self.offsets.lower(self.store.max_offset_in_queue):
            self.offsets.persist()
        run_to_end(self.log.replay_steps())
        self.engine.orders.schedule_all()

    async def persist(self) -> None:
        """Write all tables, as the broker does every few seconds."""
        self.topics.writer.write_now()
        self.groups.writer.write_now()
        await self.offsets.persist_in_thread()

    async def stop(self) -> None:
        await self.revival.shutdown()
        await self.persist()
        await self.store.shutdown()

    def send(self, body: bytes, queue_id: int = 0, **more: Any) -> None:
        put(self.store, TOPIC, queue_id, body, **more)

    def pop(self, count: int = 32, invisible_ms: int = 60_000, **more: Any) -> list[Lease]:
        popped = self.popped(count, invisible_ms, **more)
        return [
            Lease(batch, index, popped.pop_time_ms)
            for batch in popped.batches
            for index in range(len(batch.offsets))
        ]

    def popped(self, count: int = 32, invisible_ms: int = 60_000, **more: Any) -> PopResult:
        table = {"group": GROUP, "topic": TOPIC, **more}
        popped = self.engine.pop(PopRequest(count=count, invisible_ms=invisible_ms, **table))
        assert not inspect.isawaitable(popped)
        return popped

    def ack(self, *leases: Lease) -> list[Outcome]:
        return [self.engine.acknowledge(each.key, each.handle, [each.offset]) for each in leases]

    def ack_ordered(self, lease: Lease) -> Outcome:
        return self.engine.acknowledge_ordered(lease.key, lease.handle.pop_time_ms, [lease.offset])

    async def after(self, milliseconds: int) -> None:
        """Advance the clock and redeliver the messages whose leases ended."""
        self.clock.advance_ms(milliseconds)
        while await self.revival.revive_due():
            pass

    def stored(self, topic: str, queue_id: int = 0) -> list[MessageExt]:
        if queue_id not in self.store.queue_ids(topic):
            return []
        return read_all(self.store, topic, queue_id)

    def committed(self, topic: str = TOPIC, queue_id: int = 0) -> int:
        return self.offsets.query(GROUP, topic, queue_id)


def bodies(leases: list[Lease]) -> list[bytes]:
    return [each.body for each in leases]
