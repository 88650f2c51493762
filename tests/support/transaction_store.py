"""A store with transactions, checked when the test triggers it."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from broker_core.clock import SteadyClock
from broker_core.counted_log import CountedLog
from broker_core.errors import RequestRefusedError
from broker_core.message import properties as message_properties
from broker_core.message.names import RMQ_SYS_TRANS_HALF_TOPIC
from broker_core.metadata.consumer_offsets import ConsumerOffsets
from broker_core.metadata.document import Document
from broker_core.store.results import PutMessageResult, PutMessageStatus
from broker_core.transaction.check import CheckSettings, TransactionCheck
from broker_core.transaction.half import Outcome, withhold
from broker_core.transaction.resolve import Transactions
from tests.support.builders import HOST, a_store, read_all, store_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker_core.message.message import MessageExt
    from broker_core.processors.wrappers.transaction_listener import Ask, ListenerAdapter
    from broker_core.transaction.check import CheckedHalf
    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage

TIMEOUT_MS = 6_000
INTERVAL_MS = 60_000
CHECK_MAX = 15
GROUP = "pg"
COMMIT, ROLLBACK = Outcome.COMMITTED, Outcome.ROLLED_BACK
FAILED = PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)


class Transacted:
    """One run of a store; a second one on the same storage is a restart."""

    def __init__(
        self,
        clock: ManualClock,
        storage: FaultyStorage,
        *,
        flush_disk_type: str = "ASYNC_FLUSH",
        log_file_size: int = 64 * 1024,
        listened: Callable[[Ask], ListenerAdapter] | None = None,
    ) -> None:
        self._listened = listened
        self.clock = clock
        self.storage = storage
        config = store_config(
            flush_disk_type=flush_disk_type,
            mapped_file_size_commit_log=log_file_size,
            mapped_file_size_consume_queue=20_000,
            max_hash_slot_num=1_000,
            max_index_num=4_000,
        )
        self.store = a_store(clock, storage, config)
        self.offsets = ConsumerOffsets(Document(storage, Path("/store/config/consumerOffset.json")))
        self.topics: set[str] = set()
        self.requests: list[CheckedHalf] = []
        self.has_producer = True
        self.transactions: Transactions
        self.check: TransactionCheck
        self.settings = CheckSettings(TIMEOUT_MS, INTERVAL_MS, CHECK_MAX, 72 * 3_600_000)
        self._numbers = 0
        self._is_running = False

    @contextmanager
    def refused_copies(self) -> Iterator[None]:
        """Make the store reject copies of messages: each put is FAILED."""
        with mock.patch.object(self.store, "put_copy", return_value=FAILED):
            yield

    async def start(self) -> None:
        self.store.load()
        self.offsets.load()
        steady = SteadyClock(self.clock)
        self.transactions = Transactions(
            self.store,
            self.offsets,
            self.topics.add,
            HOST,
            steady,
        )
        listened = None if self._listened is None else self._listened(self._ask)
        self.check = TransactionCheck(
            lambda: self.settings,
            self.transactions,
            self._ask if listened is None else listened.ask,
            CountedLog(self.clock),
            self.clock,
            steady,
            None if listened is None else listened.resolve_discard,
        )
        self.transactions.load()
        await self.store.start()
        self.transactions.start()
        self._is_running = True

    async def stop(self) -> None:
        if self._is_running:
            self._is_running = False
            await self.check.shutdown()
            self.offsets.persist()
            await self.store.shutdown()

    def persist(self) -> None:
        """Write the progress, as the broker does every few seconds."""
        self.transactions.settle()
        self.transactions.settle()
        self.offsets.persist()

    def send(
        self, body: bytes = b"half", topic: str = "T", queue_id: int = 0, **more: str
    ) -> PutMessageResult:
        self._numbers += 1
        table = {
            "TRAN_MSG": "true",
            "PGROUP": GROUP,
            "UNIQ_KEY": f"U{self.clock.now_ms()}-{self._numbers}",
            **more,
        }
        place = withhold(table, topic, queue_id)
        born_timestamp = self.clock.now_ms()
        result = self.store.put_message(
            *place,
            body,
            message_properties.encode(table),
            tags=table.get("TAGS"),
            keys=table.get("KEYS"),
            uniq_key=table.get("UNIQ_KEY"),
            flag=7,
            sys_flag=0,
            born_timestamp=born_timestamp,
            born_host=HOST,
        )
        assert result.status is PutMessageStatus.PUT_OK
        self.transactions.add(result, table, body, born_timestamp, HOST)
        return result

    def end(
        self, half: PutMessageResult | CheckedHalf, outcome: Outcome
    ) -> PutMessageResult | None:
        return self.transactions.end(GROUP, half.queue_offset, half.commit_log_offset, outcome)

    def refusal(self, half: PutMessageResult | CheckedHalf, outcome: Outcome) -> str | None:
        """End a transaction; return the broker's reason for rejecting it, or None."""
        try:
            self.end(half, outcome)
        except RequestRefusedError as refusal:
            return refusal.remark
        return None

    async def round(self) -> list[CheckedHalf]:
        """Advance by one interval, check, and return the checks that the producer received."""
        self.clock.advance_ms(INTERVAL_MS)
        self.requests.clear()
        await self.check.check()
        return list(self.requests)

    def arrived(self, topic: str = "T", queue_id: int = 0) -> list[MessageExt]:
        return read_all(self.store, topic, queue_id)

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        return [message.body for message in self.arrived(topic, queue_id)]

    def half_queue(self) -> list[MessageExt]:
        return self.arrived(RMQ_SYS_TRANS_HALF_TOPIC)

    def _ask(self, half: CheckedHalf) -> bool:
        if self.has_producer:
            self.requests.append(half)
        return self.has_producer
