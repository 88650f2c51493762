"""ConsumerTrace: reports deliveries and acknowledgements to the watchers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.formats.record import decode_all
from broker_core.message.ids import offset_msg_id

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
        now_ms = self._clock.now_ms()
        client_id = self._client_id(group, connection)
        for buffer in buffers:
            for message in decode_all(buffer):
                self.tracer.emit(
                    "delivered",
                    topic,
                    queue_id,
                    message.queue_offset,
                    commit_log_offset=str(message.commit_log_offset),
                    store_size=message.store_size,
                    body_size=len(message.body),
                    tags=message.tags,
                    keys=message.keys,
                    uniq_key=message.uniq_key,
                    offset_msg_id=offset_msg_id(self._store_host, message.commit_log_offset),
                    group=group,
                    client=connection.remote_address,
                    client_id=client_id,
                    latency_us=max(0, now_ms - message.store_timestamp) * 1000,
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
        """Emit the event of a consumer offset that moved; `before` is -1 when there was none."""
        self.tracer.emit(
            "acknowledged",
            topic,
            queue_id,
            offset,
            acknowledged_from=str(max(0, min(before, offset))),
            group=group,
            client=connection.remote_address,
            client_id=self._client_id(group, connection),
        )

    def _client_id(self, group: str, connection: Connection) -> str | None:
        consumer_group = self._consumers.find(group)
        member = consumer_group.members.get(connection) if consumer_group else None
        return member.client_id if member else None
