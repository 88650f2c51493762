"""OffsetCommits: consumer offsets that clients commit, in a pull or a separate request."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.processors.wrappers.consume_hooks import QueuePlace
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from broker_core.counted_log import CountedLog
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.processors.commit_check import CommitCheck, Refusal
    from broker_core.processors.consumer_trace import ConsumerTrace
    from broker_core.processors.wrappers.consume_hooks import ConsumeHooks
    from broker_core.remoting.connection import Connection

logger = logging.getLogger(__name__)


class OffsetCommits:
    """Stores offsets and reports changes to watchers and consume hooks. Event loop only.

    Attributes:
        offsets: the table that stores them.
    """

    def __init__(
        self,
        offsets: ConsumerOffsets,
        check: CommitCheck,
        trace: ConsumerTrace,
        counted_log: CountedLog,
        hooks: ConsumeHooks | None = None,
    ) -> None:
        self.offsets = offsets
        self._check = check
        self._counted_log = counted_log
        self._trace = trace
        self._tracer = trace.tracer
        self._hooks = hooks

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, connection: Connection
    ) -> None:
        """Store a group's offset of a queue, even if it is smaller than before.

        Raises:
            RequestRefusedError: the group can't have read up to this offset.
        """
        refusal = self._refusal(group, topic, queue_id, offset, connection)
        if refusal is not None:
            code = ResponseCode.SYSTEM_ERROR
            if refusal.is_topic_missing:
                code = ResponseCode.TOPIC_NOT_EXIST
            raise RequestRefusedError(code, f"the offset is not stored: {refusal.why}")
        self._store(group, topic, queue_id, offset, connection)

    def commit_with_pull(
        self, group: str, topic: str, queue_id: int, offset: int, connection: Connection
    ) -> None:
        """Store the offset in a pull request, or discard it; the broker serves the pull anyway.

        The native turn does the same, except for offsets that may have to be discarded and for
        offsets that watchers or listeners want to see.
        """
        if self._refusal(group, topic, queue_id, offset, connection) is None:
            self._store(group, topic, queue_id, offset, connection)

    def is_former(
        self, group: str, topic: str, queue_id: int, queue_offset: int, connection: Connection
    ) -> bool:
        """Return whether a pull's offset belongs to a deleted topic and would skip new messages."""
        return self._check.is_former(group, topic, queue_id, queue_offset, connection)

    def record_query(self, group: str, topic: str, queue_id: int) -> None:
        """Record that a group asked for its offset of a queue, where its clients will start."""
        if self.offsets.former.count:
            self.offsets.former.forget(group, topic, queue_id)

    def _refusal(
        self, group: str, topic: str, queue_id: int, offset: int, connection: Connection
    ) -> Refusal | None:
        refusal = self._check.refusal(group, topic, queue_id, offset, connection)
        if refusal is not None:
            # Clients commit one-way, so only the log shows the reason.
            self._counted_log.report(
                logger,
                logging.WARNING,
                "consumer offset not stored",
                f"group={group} topic={topic}",
                "%s peer=%s",
                refusal.why,
                connection.remote_address,
            )
        return refusal

    def _store(
        self, group: str, topic: str, queue_id: int, offset: int, connection: Connection
    ) -> None:
        recorder = self._tracer.recorder
        if recorder.is_on:
            recorder.acknowledged((group, topic, queue_id), offset, connection.remote_address)
        if self._tracer.watching or self._hooks is not None:
            before = self.offsets.query(group, topic, queue_id)
            self.offsets.commit(group, topic, queue_id, offset)
            if before != offset:
                self._report(QueuePlace(group, topic, queue_id, before), offset, connection)
        else:
            self.offsets.commit(group, topic, queue_id, offset)

    def _report(self, before: QueuePlace, offset: int, connection: Connection) -> None:
        if self._tracer.watching:
            self._trace.acknowledged(
                before.group, before.topic, before.queue_id, before.queue_offset, offset, connection
            )
        if self._hooks is not None:
            self._hooks.after_commit(before, connection.remote_address, offset)
