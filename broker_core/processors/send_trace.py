"""SendTrace: tells watchers of messages that clients send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.formats.record import decode
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.protocol.headers.send_message import SendHeader
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutBatchResult, PutMessageResult
    from broker_core.trace.tracer import Tracer


class SendTrace:
    """Emits events; ask `tracer.watching` first. Event loop only.

    Attributes:
        tracer: where the events go.
    """

    def __init__(self, tracer: Tracer, store: MessageStore, store_host: bytes) -> None:
        self.tracer = tracer
        self._store = store
        self._msg_id = store_host.hex().upper() + "%016X"

    def stored(
        self,
        header: SendHeader,
        connection: Connection,
        place: tuple[str, int],
        result: PutMessageResult,
        table: Mapping[str, str],
        body_size: int,
    ) -> None:
        """Emit "stored", or "dead" for a retry that became a dead letter instead."""
        topic, queue_id = place
        self.tracer.emit(
            "stored" if topic is header.topic else "dead",
            topic,
            queue_id,
            result.queue_offset,
            table,
            commit_log_offset=str(result.commit_log_offset),
            store_size=result.wrote_size,
            body_size=body_size,
            offset_msg_id=self._msg_id % result.commit_log_offset,
            producer_group=header.producer_group,
            group=names.group_of(header.topic),
            client=connection.remote_address,
            latency_us=max(0, result.store_timestamp - header.born_timestamp) * 1000,
            reconsume_times=header.reconsume_times or None,
        )

    def batch(
        self, header: SendHeader, connection: Connection, queue_id: int, result: PutBatchResult
    ) -> None:
        """Emit "stored" for each message of a batch; what it is comes from its record."""
        for index, commit_log_offset in enumerate(result.commit_log_offsets):
            record = self._store.look_message(commit_log_offset)
            message = None if record is None else decode(record)
            self.tracer.emit(
                "stored",
                header.topic,
                queue_id,
                result.queue_offset + index,
                None if message is None else message.properties,
                commit_log_offset=str(commit_log_offset),
                store_size=message and message.store_size,
                body_size=message and len(message.body),
                offset_msg_id=self._msg_id % commit_log_offset,
                producer_group=header.producer_group,
                client=connection.remote_address,
                latency_us=max(0, result.store_timestamp - header.born_timestamp) * 1000,
            )
