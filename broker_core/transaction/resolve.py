"""Transactions: undecided half messages, and their outcomes.

An outcome is an op message for the half message. The first outcome is final: a decided half message
is removed from `pending`, and a later END changes nothing.

Commit puts the message to its topic, then the op message. With SYNC_FLUSH it puts the op message
when the message is durable, because a power cut could otherwise leave the op message alone. A
process that is killed between the two puts leaves a committed message without its op message;
`load` finds it and writes the op message.

Progress is the offset of consumer group CID_RMQ_SYS_TRANS in the half queue and in the op queue:
every half message before it is decided. It is committed after these outcomes are durable.

Source: broker/processor/EndTransactionProcessor.java,
broker/transaction/queue/TransactionalMessageServiceImpl.java (4.9.7).
Differs: RocketMQ commits again on a late or repeated END, even after a rollback.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Protocol

from broker_core.errors import RequestRefusedError
from broker_core.isolation import isolated
from broker_core.message import names
from broker_core.message.sys_flag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    reset_transaction_type,
    transaction_type,
)
from broker_core.protocol.codes import ResponseCode
from broker_core.store.results import PutMessageStatus
from broker_core.transaction import op
from broker_core.transaction.half import (
    HALF_QUEUE_ID,
    Half,
    Outcome,
    check_times,
    immunity_ms,
    immunity_ms_of,
    is_copy,
    key_of,
    key_of_message,
    key_of_plain,
    real_place,
)
from broker_core.transaction.stored import StoredMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.clock import SteadyClock
    from broker_core.message.message import MessageExt
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutMessageResult
    from broker_core.transaction.half import PlainHalf

    Committed = Callable[[MessageExt, str, int, PutMessageResult], None]
    Permit = Callable[[MessageExt], None]
    RolledBack = Callable[[MessageExt], None]
    EnsureTopic = Callable[[str], object]

logger = logging.getLogger(__name__)

SYSTEM_GROUP = names.TRANSACTION_CONSUMER_GROUP
HALF_TOPIC = names.RMQ_SYS_TRANS_HALF_TOPIC
OP_TOPIC = names.RMQ_SYS_TRANS_OP_HALF_TOPIC
MAX_TIME_TOPIC = names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC
ENDED_KEPT = 10_000
"""Outcomes kept in memory; older outcomes are looked up in the store."""
TAIL_UNITS = 64
"""Messages at a queue's end that are searched at startup for a missing op message."""
UNDECIDED, GIVEN_UP, UNKNOWN = "undecided", "given_up", "unknown"
"""States of a transaction without an outcome."""


class OffsetTable(Protocol):
    """The committed offsets of groups; implemented by metadata's ConsumerOffsets."""

    def query(self, group: str, topic: str, queue_id: int) -> int: ...

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None: ...


class Transactions:
    """Event loop only, except for `load`.

    Attributes:
        pending: the undecided half messages, by queue_offset, in order.
        plain: the native turn puts plain commits directly, then calls `note_commit`.

    `on_committed` is called with a half message, its destination topic and queue_id, and the put;
    `on_rolled_back` with a half message.
    """

    def __init__(
        self,
        store: MessageStore,
        offsets: OffsetTable,
        ensure_topic: EnsureTopic,
        store_host: bytes,
        steady: SteadyClock,
        on_committed: Committed | None = None,
        on_rolled_back: RolledBack | None = None,
    ) -> None:
        self._on_committed = on_committed
        self._on_rolled_back = on_rolled_back
        self.pending: dict[int, Half] = {}
        self._owed: dict[int, int] = {}
        """Queue offset of a decided half message -> end of its committed message."""
        self._store = store
        self._stored = StoredMessages(store)
        self._offsets = offsets
        self._ensure_topic = ensure_topic
        self._store_host = store_host
        self._steady = steady
        self.plain = op.PlainCommits.of(steady.now_ms)
        self._by_key: dict[bytes, Half] = {}
        self._ended: OrderedDict[bytes, Outcome] = OrderedDict()
        self._ops: deque[tuple[int, int]] = deque()
        self._next_half = 0
        self._next_op = 0
        self._settling: tuple[int, int, int] | None = None
        self._last_copy: PutMessageResult | None = None

    def load(self) -> None:
        """Find the undecided half messages in the store.

        Call this before the store starts, and when a slave becomes master.
        """
        for known in (self.pending, self._owed, self._by_key, self._ended, self._ops):
            known.clear()
        self._settling = None
        half_from = self._progress_of(HALF_TOPIC)
        removed = set()
        self._next_half = self._store.max_offset_in_queue(HALF_TOPIC, HALF_QUEUE_ID)
        self._next_op = self._store.max_offset_in_queue(OP_TOPIC, HALF_QUEUE_ID)
        for message in self._stored.read(OP_TOPIC, self._progress_of(OP_TOPIC)):
            for half_offset in op.half_queue_offsets(message):
                removed.add(half_offset)
                self._ops.append((message.queue_offset, half_offset))
        for message in self._stored.read(HALF_TOPIC, half_from):
            if message.queue_offset not in removed:
                self._add_stored(message)
        self._find_outcomes_without_op()
        if self.pending or self._next_half:
            logger.info(
                "transactions loaded count=%d half_offset=%d", len(self.pending), self._next_half
            )

    def start(self) -> None:
        """Write the op messages that a killed process left unwritten."""
        self.write_pending()

    def add(
        self,
        result: PutMessageResult,
        properties: Mapping[str, str],
        body: bytes | memoryview,
        born_timestamp: int,
        born_host: bytes,
    ) -> None:
        """Add a half message that a producer sent and that was just put."""
        self._add_new(
            key_of(properties, body, born_timestamp, born_host),
            result.queue_offset,
            result.commit_log_offset,
            properties.get(names.PROPERTY_UNIQ_KEY, ""),
            immunity_ms(properties),
        )

    def add_plain(self, half: PlainHalf, born_host: bytes) -> None:
        """Add a half message that the native turn has just put."""
        self._add_new(
            key_of_plain(half, born_host),
            half.queue_offset,
            half.commit_log_offset,
            half.uniq_key,
            immunity_ms_of(half.immunity),
        )

    def _add_new(
        self,
        key: bytes,
        queue_offset: int,
        commit_log_offset: int,
        uniq_key: str,
        immune_ms: int | None,
    ) -> None:
        self._ensure_topic(HALF_TOPIC)
        now_ms = self._steady.now_ms()
        key = self._free_key(key, queue_offset)
        self._take(
            Half(key, queue_offset, commit_log_offset, uniq_key, now_ms, now_ms, 0, immune_ms)
        )

    def renew(
        self, half: Half, message: MessageExt, properties: dict[str, str]
    ) -> PutMessageResult | None:
        """Put a copy at the queue's end, which represents the transaction from now on.

        Returns None if the put failed; then the previous half message still represents it.

        Differs: the copy keeps the message's flag; RocketMQ loses it.
        """
        result = self._store.put_copy(
            message, HALF_TOPIC, HALF_QUEUE_ID, properties, reconsume_times=0
        )
        if result.status is not PutMessageStatus.PUT_OK:
            return None
        self._last_copy = result
        superseded = half.queue_offset
        self._drop(half)
        half.queue_offset = result.queue_offset
        half.commit_log_offset = result.commit_log_offset
        half.check_times = check_times(properties)
        half.stored_ms = self._steady.now_ms()
        half.is_copy = True
        self._take(half)
        # Otherwise a broker that takes over this store would check the original, too.
        self._put_op(superseded, None)
        return result

    def park(self, half: Half, message: MessageExt) -> bool:
        """Stop checking: move the transaction to TRANS_CHECK_MAX_TIME_TOPIC."""
        self._ensure_topic(MAX_TIME_TOPIC)
        result = self._store.put_copy(message, MAX_TIME_TOPIC, HALF_QUEUE_ID, message.properties)
        if result.status is not PutMessageStatus.PUT_OK:
            return False
        self._drop(half)
        self._put_op(half.queue_offset, None)
        return True

    def resume(self, message: MessageExt) -> None:
        """Put a message of TRANS_CHECK_MAX_TIME_TOPIC back.

        Raises:
            RequestRefusedError: it isn't a parked transaction, is decided, or can't be stored.
        """
        if message.topic != MAX_TIME_TOPIC or real_place(message) is None:
            raise _refusal("it is not a half message that was checked too often")
        key = key_of_message(message)
        if key in self._by_key:
            return
        outcome = self._ended_before(key, message)
        if outcome is not None:
            raise _refusal(f"the transaction was {outcome.value}")
        properties = {**message.properties, names.PROPERTY_TRANSACTION_CHECK_TIMES: "0"}
        result = self._store.put_copy(message, HALF_TOPIC, HALF_QUEUE_ID, properties)
        if result.status is not PutMessageStatus.PUT_OK:
            raise _refusal(result.status.name)
        now_ms = self._steady.now_ms()
        self._take(
            Half(
                key,
                result.queue_offset,
                result.commit_log_offset,
                message.uniq_key or "",
                now_ms,
                now_ms,
                0,
                None,
                is_copy=True,
            )
        )

    def forget(self, half: Half) -> None:
        """Remove a half message whose record was deleted."""
        self._drop(half)

    def is_readable(self, half: Half) -> bool:
        """Return whether a half message is readable, or deleted."""
        return half.queue_offset < self._stored.readable_to(HALF_TOPIC)

    def read(self, half: Half) -> MessageExt | None:
        """Return the record of a half message, or None if it is deleted or not readable yet."""
        return self._stored.at(half.commit_log_offset)

    def with_key(self, key: str) -> list[MessageExt]:
        """Return the half messages with a key, decided or not, in queue order."""
        return self._stored.with_key(HALF_TOPIC, key)

    def at(self, queue_offset: int) -> MessageExt | None:
        """Return the half message at a queue offset, decided or not."""
        found = next(self._stored.read(HALF_TOPIC, queue_offset), None)
        return None if found is None or found.queue_offset != queue_offset else found

    def outcome_of(self, message: MessageExt) -> str:
        """Return the state of a half message's transaction; UNKNOWN on a slave."""
        if message.queue_offset >= self._next_half:
            return UNKNOWN
        key = key_of_message(message)
        half = self.pending.get(message.queue_offset) or self._by_key.get(key)
        if half is not None:
            return UNDECIDED if half.outcome is None else half.outcome.name.lower()
        outcome = self._decided(key, message)
        return GIVEN_UP if outcome is None else outcome.name.lower()

    async def until_readable(self) -> None:
        """Wait until all half messages are readable, at most as long as a sender waits."""
        await self._stored.until_readable(HALF_TOPIC, self._next_half, self._last_copy)

    def end(
        self,
        producer_group: str,
        queue_offset: int,
        commit_log_offset: int,
        outcome: Outcome,
        permit: Permit | None = None,
    ) -> PutMessageResult | None:
        """Decide a transaction by one of its half messages; the first outcome is final.

        `permit` is called with the half message before anything is decided.

        Returns the put that failed, or the last put that made the outcome effective; None if the
        transaction had this outcome before.

        Raises:
            RequestRefusedError: the half message doesn't exist or has the other outcome, or
                `permit` refuses.
        """
        message = self._stored.at(commit_log_offset)
        if message is None or message.topic != HALF_TOPIC:
            raise _refusal("Find prepared transaction message failed")
        if message.properties.get(names.PROPERTY_PRODUCER_GROUP) != producer_group:
            raise _refusal("The producer group wrong")
        if message.queue_offset != queue_offset:
            raise _refusal("The transaction state table offset wrong")
        if permit is not None:
            permit(message)
        key = key_of_message(message)
        half = self.pending.get(queue_offset) or self._by_key.get(key)
        if half is None:
            return self._end_again(key, message, outcome)
        if half.is_copy and half.outcome is None and self._is_committed(key, message):
            # A real broker decides the original and leaves its copies unchanged.
            half.outcome = Outcome.COMMITTED
        if half.outcome is not None:
            if half.outcome is not outcome:
                raise _refusal(f"the transaction was {half.outcome.value}")
            return self._write_outcome(half)
        if outcome is Outcome.ROLLED_BACK:
            half.outcome = outcome
            if self._on_rolled_back is not None:
                self._on_rolled_back(message)
            return self._write_outcome(half)
        committed = self._put_committed(message)
        if committed.status is not PutMessageStatus.PUT_OK:
            return committed
        half.outcome = outcome
        if self._store.acknowledge.waits:
            self._owed[half.queue_offset] = committed.commit_log_offset + committed.wrote_size
            return committed
        return self._write_outcome(half)

    def note_commit(self, half: Half, op_queue_offset: int) -> None:
        """Note a commit and its op message, both put by the native turn."""
        self._note_op(half.queue_offset, op_queue_offset)
        self._note_outcome(half, Outcome.COMMITTED)

    def write_pending(self) -> None:
        """Write the op messages that had to wait for a flush, or whose put failed."""
        acknowledged_where = self._store.acknowledge.acknowledged_where
        for queue_offset, end in list(self._owed.items()):
            if end <= acknowledged_where:
                with isolated("writing an outstanding op message", queue_offset):
                    written = self._write_outcome(self.pending[queue_offset])
                    if written.status is not PutMessageStatus.PUT_OK:
                        return

    @property
    def half_progress(self) -> int:
        """All half messages before this queue offset are decided."""
        return next(iter(self.pending), self._next_half)

    @property
    def span(self) -> int:
        """Number of half messages that a restart would read."""
        return self._next_half - self.half_progress

    def settle(self) -> None:
        """Commit the progress once all outcomes in it are durable."""
        self.write_pending()
        if self._settling is None:
            self._settling = (*self._progress(), self._store.max_commit_log_offset)
        half_progress, op_progress, end = self._settling
        if self._store.flushed_where >= end:
            self._settling = None
            self._commit_progress(half_progress, op_progress)

    async def settle_all(self) -> None:
        """Flush, then commit the progress; call it before the store is shut down."""
        if self._owed and await self._store.flush():
            self.write_pending()
        progress = self._progress()
        if await self._store.flush():
            self._commit_progress(*progress)

    def _progress(self) -> tuple[int, int]:
        half_progress = self.half_progress
        ops = self._ops
        while ops and ops[0][1] < half_progress:
            ops.popleft()
        return half_progress, ops[0][0] if ops else self._next_op

    def _commit_progress(self, half_progress: int, op_progress: int) -> None:
        if half_progress or op_progress or self._next_half:
            self._offsets.commit(SYSTEM_GROUP, HALF_TOPIC, HALF_QUEUE_ID, half_progress)
            self._offsets.commit(SYSTEM_GROUP, OP_TOPIC, HALF_QUEUE_ID, op_progress)

    def _progress_of(self, topic: str) -> int:
        low = self._store.min_offset_in_queue(topic, HALF_QUEUE_ID)
        high = self._store.max_offset_in_queue(topic, HALF_QUEUE_ID)
        stored = self._offsets.query(SYSTEM_GROUP, topic, HALF_QUEUE_ID)
        return low if stored < 0 else min(max(stored, low), high)

    def _take(self, half: Half) -> None:
        self.pending[half.queue_offset] = half
        self._by_key[half.key] = half
        self._next_half = max(self._next_half, half.queue_offset + 1)

    def _drop(self, half: Half) -> None:
        self.pending.pop(half.queue_offset, None)
        self._owed.pop(half.queue_offset, None)
        if self._by_key.get(half.key) is half:
            del self._by_key[half.key]

    def _free_key(self, key: bytes, queue_offset: int) -> bytes:
        """Return a unique key for a message that equals another in every field."""
        return key if key not in self._by_key else key + b"%d" % queue_offset

    def _add_stored(self, message: MessageExt) -> None:
        """Add a half message from an earlier run."""
        key = key_of_message(message)
        now_ms = self._steady.now_ms()
        since_ms = message.store_timestamp
        if is_copy(message.properties):
            since_ms = min(message.born_timestamp, since_ms)
            earlier = self._by_key.get(key)
            if earlier is not None:
                self._drop(earlier)
        else:
            key = self._free_key(key, message.queue_offset)
        self._take(
            Half(
                key,
                message.queue_offset,
                message.commit_log_offset,
                message.uniq_key or "",
                min(since_ms, now_ms),
                min(message.store_timestamp, now_ms - 1),
                check_times(message.properties),
                immunity_ms(message.properties),
                is_copy(message.properties),
            )
        )

    def _find_outcomes_without_op(self) -> None:
        """Find committed messages whose op message a killed process didn't write.

        Searches the index, and the last messages of the queues, because they may have no keys.
        """
        places = set()
        for half in list(self.pending.values()):
            message = self.read(half)
            place = None if message is None else real_place(message)
            if message is None or place is None:
                continue
            places.add(place)
            if self._is_committed(key_of_message(message), message):
                self._found_committed(half)
        for topic, queue_id in places:
            end = self._store.max_offset_in_queue(topic, queue_id)
            for message in self._stored.read(topic, max(0, end - TAIL_UNITS), queue_id):
                if transaction_type(message.sys_flag) != TRANSACTION_COMMIT_TYPE:
                    continue
                committed = self._by_key.get(key_of_message(message))
                if committed is not None:
                    self._found_committed(committed)

    def _found_committed(self, half: Half) -> None:
        if half.outcome is None:
            half.outcome = Outcome.COMMITTED
            self._owed[half.queue_offset] = 0
            logger.info("transaction already committed uniq_key=%s", half.uniq_key)

    def _put_committed(self, message: MessageExt) -> PutMessageResult:
        place = real_place(message)
        if place is None:
            raise _refusal("the half message has no destination")
        result = self._store.put_copy(
            message,
            *place,
            message.properties,
            sys_flag=reset_transaction_type(message.sys_flag, TRANSACTION_COMMIT_TYPE),
            prepared_transaction_offset=message.commit_log_offset,
        )
        if self._on_committed is not None and result.status is PutMessageStatus.PUT_OK:
            self._on_committed(message, *place, result)
        return result

    def _write_outcome(self, half: Half) -> PutMessageResult:
        assert half.outcome is not None
        # A later END may name an earlier or a parked copy: this key finds the outcome.
        keys = half.uniq_key if half.is_copy and op.is_key(half.uniq_key) else None
        written = self._put_op(half.queue_offset, keys)
        if written.status is not PutMessageStatus.PUT_OK:
            self._owed[half.queue_offset] = 0
            return written
        self._note_outcome(half, half.outcome)
        return written

    def _note_outcome(self, half: Half, outcome: Outcome) -> None:
        half.outcome = outcome
        self._drop(half)
        self._remember(half.key, outcome)

    def _note_op(self, half_queue_offset: int, op_queue_offset: int) -> None:
        self._ops.append((op_queue_offset, half_queue_offset))
        self._next_op = op_queue_offset + 1

    def _put_op(self, half_queue_offset: int, keys: str | None) -> PutMessageResult:
        result = self._store.put_message(
            OP_TOPIC,
            HALF_QUEUE_ID,
            op.body_of(half_queue_offset),
            op.properties_text(keys),
            tags=op.REMOVE_TAG,
            keys=keys,
            uniq_key=None,
            flag=0,
            sys_flag=TRANSACTION_NOT_TYPE,
            born_timestamp=self._steady.now_ms(),
            born_host=self._store_host,
        )
        if result.status is PutMessageStatus.PUT_OK:
            self._note_op(half_queue_offset, result.queue_offset)
        return result

    def _end_again(
        self, key: bytes, message: MessageExt, outcome: Outcome
    ) -> PutMessageResult | None:
        """Handle an END for a half message that isn't pending: it is decided or parked."""
        before = self._decided(key, message)
        if before is None:
            if outcome is Outcome.COMMITTED:
                committed = self._put_committed(message)
                if committed.status is not PutMessageStatus.PUT_OK:
                    return committed
            self._remember(key, outcome)
            uniq_key = message.uniq_key or ""
            return self._put_op(message.queue_offset, uniq_key if op.is_key(uniq_key) else None)
        if before is not outcome:
            raise _refusal(f"the transaction was {before.value}")
        return None

    def _decided(self, key: bytes, message: MessageExt) -> Outcome | None:
        """Return the outcome of a half message that isn't pending, or None if it is parked."""
        before = self._ended_before(key, message)
        if before is None and not self._is_parked(key, message):
            before = Outcome.COMMITTED if self._is_committed(key, message) else Outcome.ROLLED_BACK
        return before

    def _ended_before(self, key: bytes, message: MessageExt) -> Outcome | None:
        """Return the outcome from memory, or from the op message of a checked transaction."""
        known = self._ended.get(key)
        if known is not None:
            return known
        uniq_key = message.uniq_key
        if uniq_key is None or not self._stored.with_key(OP_TOPIC, uniq_key):
            return None
        return Outcome.COMMITTED if self._is_committed(key, message) else Outcome.ROLLED_BACK

    def _is_parked(self, key: bytes, message: MessageExt) -> bool:
        uniq_key = message.uniq_key
        return uniq_key is not None and any(
            key_of_message(found) == key
            for found in self._stored.with_key(MAX_TIME_TOPIC, uniq_key)
        )

    def _is_committed(self, key: bytes, message: MessageExt) -> bool:
        topic = message.properties.get(names.PROPERTY_REAL_TOPIC, "")
        return any(
            transaction_type(found.sys_flag) == TRANSACTION_COMMIT_TYPE
            and key_of_message(found) == key
            for found in self._stored.with_key(topic, message.uniq_key or "")
        )

    def _remember(self, key: bytes, outcome: Outcome) -> None:
        self._ended[key] = outcome
        if len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)


def _refusal(remark: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
