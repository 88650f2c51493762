"""OffsetCommits: consumer offsets that clients commit, with a pull or by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.processors.around.consume_hooks import QueuePlace

if TYPE_CHECKING:
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.processors.around.consume_hooks import ConsumeHooks
    from broker_core.processors.consumer_trace import ConsumerTrace
    from broker_core.remoting.connection import Connection


class OffsetCommits:
    """Stores offsets; tells watchers and consume hooks of those that moved. Event loop only.

    Attributes:
        offsets: where they are stored.
    """

    def __init__(
        self, offsets: ConsumerOffsets, trace: ConsumerTrace, hooks: ConsumeHooks | None = None
    ) -> None:
        self.offsets = offsets
        self._trace = trace
        self._tracer = trace.tracer
        self._hooks = hooks

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, connection: Connection
    ) -> None:
        """Store a group's offset of a queue, the smaller one as well.

        The native turn does the same for pulls, but for what somebody is told of.
        """
        recorder = self._tracer.recorder
        if recorder.is_on:
            recorder.acknowledged((group, topic, queue_id), offset, connection.remote_address)
        if self._tracer.watching or self._hooks is not None:
            before = self.offsets.query(group, topic, queue_id)
            self.offsets.commit(group, topic, queue_id, offset)
            if before != offset:
                self._tell(QueuePlace(group, topic, queue_id, before), offset, connection)
        else:
            self.offsets.commit(group, topic, queue_id, offset)

    def _tell(self, before: QueuePlace, offset: int, connection: Connection) -> None:
        if self._tracer.watching:
            self._trace.acknowledged(
                before.group, before.topic, before.queue_id, before.queue_offset, offset, connection
            )
        if self._hooks is not None:
            self._hooks.after_commit(before, connection.remote_address, offset)
