"""ConsumerTrace: reports deliveries and acknowledgements to the watchers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.formats.record import decode_all
from broker_core.message.ids import offset_msg_id
from broker_core.trace.deliveries import Delivered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.clients.consumers import Consumers
    from broker_core.clock import Clock
    from broker_core.remoting.connection import Connection
    from broker_core.trace.tracer import Tracer


class ConsumerTrace:
    """Emits events; ask `tracer.watching` first. Event loop only.

    Attributes:
        tracer: where the events go.
    """

    def __init__(
        self, tracer: Tracer, consumers: Consumers, store_host: bytes, clock: Clock
    ) -> None:
        self.tracer = tracer
        self._consumers = consumers
        self._store_host = store_host
        self._clock = clock

    def delivered(
        self,
        group: str,
        topic: str,
        queue_id: int,
        buffers: Sequence[memoryview],
        connection: Connection,
    ) -> None:
        """Emit an event for each message that a pull is answered with."""
        now_ms, at_s = self._clock.now_ms(), self._clock.monotonic()
        client_id = self._consumers.client_id_of(group, connection)
        for buffer in buffers:
            for message in decode_all(buffer):
                msg_id = offset_msg_id(self._store_host, message.commit_log_offset)
                body_size = len(message.body)
                self.tracer.deliveries.note(
                    (group, topic, queue_id),
                    message.queue_offset,
                    Delivered(
                        message.properties, message.commit_log_offset, msg_id, body_size, at_s
                    ),
                )
                self.tracer.emit(
                    "delivered",
                    topic,
                    queue_id,
                    message.queue_offset,
                    message.properties,
                    commit_log_offset=str(message.commit_log_offset),
                    store_size=message.store_size,
                    body_size=body_size,
                    offset_msg_id=msg_id,
                    group=group,
                    client=connection.remote_address,
                    client_id=client_id,
                    latency_us=max(0, now_ms - message.store_timestamp) * 1000,
                    reconsume_times=message.reconsume_times or None,
                )

    def acknowledged(
        self,
        group: str,
        topic: str,
        queue_id: int,
        before: int,
        offset: int,
        connection: Connection,
    ) -> None:
        """Emit the events of a consumer offset that moved; `before` is -1 when there was none.

        One for each message that was seen delivered, with the time that the group had it; one for
        those before and one for those after, which were delivered unseen or filtered out.
        """
        who: dict[str, Any] = {
            "group": group,
            "client": connection.remote_address,
            "client_id": self._consumers.client_id_of(group, connection),
        }

        def emit_range(first: int, end: int) -> None:
            self.tracer.emit(
                "acknowledged", topic, queue_id, end, acknowledged_from=str(first), **who
            )

        first = max(0, min(before, offset))
        seen = self.tracer.deliveries.take((group, topic, queue_id), first, offset)
        if not seen:
            emit_range(first, offset)
            return
        if first < seen[0][0]:
            emit_range(first, seen[0][0])
        now_s = self._clock.monotonic()
        for queue_offset, delivered in seen:
            self.tracer.emit(
                "acknowledged",
                topic,
                queue_id,
                queue_offset,
                delivered.properties,
                commit_log_offset=str(delivered.commit_log_offset),
                body_size=delivered.body_size,
                offset_msg_id=delivered.offset_msg_id,
                latency_us=max(0, round((now_s - delivered.at_s) * 1_000_000)),
                **who,
            )
        if seen[-1][0] + 1 < offset:
            emit_range(seen[-1][0] + 1, offset)
