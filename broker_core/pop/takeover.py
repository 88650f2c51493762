"""Take over the leases of a RocketMQ 5.3.3 broker whose store this broker continues.

5.3.3 sends each record of a lease through the timer topic, and reads it when the lease ends. So the
records of its open leases are pending timer messages, in the order in which they were written: a
lease, then its acknowledgements. This broker applies them all when it starts, and writes the leases
that are left to its own log. Until then it refuses to lease and acknowledge messages, because an
acknowledgement may need a lease that isn't read yet.

Source: broker/processor/PopReviveService.java (5.3.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from broker_core.message.names import PROPERTY_REAL_TOPIC, PROPERTY_TAGS
from broker_core.pop import records
from broker_core.pop.checkpoint import Checkpoint, Handle, QueueKey
from broker_core.pop.revive_log import log_skipped
from broker_core.steps import run_for, run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from broker_core.clock import Clock
    from broker_core.message.message import MessageExt
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.pop.leases import Leases
    from broker_core.pop.revive_log import ReviveLog
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutMessageResult

logger = logging.getLogger(__name__)

TURN_S = 0.004


class Takeover:
    """Applies the records in timer messages. Event loop only.

    Attributes:
        on_finished: called when all leases are known, and when one follows.
    """

    def __init__(
        self,
        log: ReviveLog,
        leases: Leases,
        offsets: ConsumerOffsets,
        store: MessageStore,
        clock: Clock,
    ) -> None:
        self._log = log
        self._leases = leases
        self._offsets = offsets
        self._store = store
        self._clock = clock
        self._unwritten: dict[Checkpoint, None] = {}
        self._unwritten_acks: list[tuple[Checkpoint, list[int]]] = []
        self._lease_count = 0
        self.on_finished: Callable[[], None] = lambda: None

    def begin(self, *, may_be_foreign: bool) -> None:
        """Wait for the timer messages, if RocketMQ may have stored some."""
        self._unwritten.clear()
        self._unwritten_acks.clear()
        self._lease_count = 0
        self._log.is_taking_over = may_be_foreign

    def claim(self, message: MessageExt) -> bool:
        """Apply a pending timer message if it is the record of a lease; return whether it is."""
        if message.properties.get(PROPERTY_REAL_TOPIC) != self._log.topic:
            return False
        try:
            self._apply(message)
        except (msgspec.DecodeError, ValueError) as error:
            log_skipped(message.queue_offset, message.commit_log_offset, error)
        return True

    async def store(self) -> bool:
        """Write what was claimed to the log and flush it; return False if the store failed."""
        if not self._unwritten and not self._unwritten_acks:
            return True
        steps = self._store_steps()
        while (end := run_for(TURN_S, self._clock.monotonic, steps)) is None:
            await self._clock.sleep(0)
        return bool(end.value) and await self._store.flush()

    def finish(self) -> None:
        """Allow leases and acknowledgements again."""
        if self._lease_count:
            logger.info(
                "leases of RocketMQ taken over messages=%d checkpoints=%d",
                self._leases.count,
                self._lease_count,
            )
            self._lease_count = 0
        if self._log.is_taking_over:
            self._log.is_taking_over = False
            self.on_finished()

    def note_delivered(
        self, message: MessageExt, topic: str, queue_id: int, result: PutMessageResult
    ) -> None:
        """Apply a record that was delivered as a timer, because it didn't look like RocketMQ's."""
        if topic != self._log.topic or not self._log.is_read:
            return
        self.claim(message)
        if run_to_end(self._store_steps()):
            self._log.skip_delivered(queue_id, result.queue_offset)
        self.on_finished()

    def _apply(self, message: MessageExt) -> None:
        tag = message.properties.get(PROPERTY_TAGS)
        if tag == records.TAG_CHECKPOINT:
            self._lease(records.decode_checkpoint(message.body), message.store_timestamp)
        elif tag in (records.TAG_ACK, records.TAG_BATCH_ACK):
            self._acknowledge(records.decode_ack(message.body))

    def _lease(self, found: records.CheckpointRecord, recorded_ms: int) -> None:
        key = QueueKey(found.group, found.topic, found.queue_id)
        if self._leases.find(key, Handle(found.start_offset, found.pop_time_ms)) is not None:
            return
        checkpoint = self._log.checkpoint_of(found, recorded_ms)
        if checkpoint is None:
            return
        leased = self._leases.leased_offsets(key)
        for index, offset in enumerate(checkpoint.offsets):
            other = leased.get(offset)
            # The record of a shorter lease reaches the revive topic before that of a longer one.
            if other is not None and other.pop_time_ms > checkpoint.pop_time_ms:
                checkpoint.acked |= 1 << index
        if checkpoint.is_done:
            return
        self._leases.add(checkpoint)
        self._unwritten[checkpoint] = None
        if self._offsets.query(*key) < 0:
            # A kill came before the first write of the offset.
            self._log.raise_offset(key, checkpoint.offsets[-1] + 1)

    def _acknowledge(self, ack: records.AckRecord) -> None:
        key = QueueKey(ack.group, ack.topic, ack.queue_id)
        found = self._leases.find(key, Handle(ack.start_offset, ack.pop_time_ms))
        if found is None:
            return
        offsets = [ack.ack_offset] if ack.offsets is msgspec.UNSET else ack.offsets
        ended = [offset for offset in offsets if self._leases.end(found, offset)]
        if ended and found not in self._unwritten:
            self._unwritten_acks.append((found, ended))
        elif found.is_done:
            del self._unwritten[found]

    def _store_steps(self) -> Generator[None, None, bool]:
        for checkpoint in list(self._unwritten):
            if not checkpoint.is_done:
                if not self._log.write_checkpoint(checkpoint):
                    return False
                self._lease_count += 1
            del self._unwritten[checkpoint]
            yield
        while self._unwritten_acks:
            if not self._log.write_acks(*self._unwritten_acks[0]):
                return False
            del self._unwritten_acks[0]
            yield
        return True
