"""StoredTrace: the events of messages that the broker itself stores again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.message.ids import offset_msg_id
from broker_core.message.names import PROPERTY_PRODUCER_GROUP, group_of

if TYPE_CHECKING:
    from broker_core.message.message import MessageExt
    from broker_core.store.results import PutMessageResult
    from broker_core.trace.tracer import Tracer


class StoredTrace:
    """Tells watchers of messages that waited, and of copies. Event loop only."""

    def __init__(self, tracer: Tracer, store_host: bytes) -> None:
        self._tracer = tracer
        self._store_host = store_host

    def emit(
        self, message: MessageExt, topic: str, queue_id: int, result: PutMessageResult
    ) -> None:
        """Emit "stored" for a deferred or withheld message that reaches its topic.

        Its latency is what it waited since it was stored first, or given back; a retry's birth is
        that of its first attempt and says nothing.
        """
        if self._tracer.watching:
            self._emit(
                "stored",
                message,
                (topic, queue_id, result.queue_offset, result.commit_log_offset),
                store_size=result.wrote_size,
                producer_group=message.properties.get(PROPERTY_PRODUCER_GROUP),
                group=group_of(topic),
                client=message.born_host,
                latency_us=max(0, result.store_timestamp - message.store_timestamp) * 1000,
                reconsume_times=message.reconsume_times or None,
            )

    def given_back(self, message: MessageExt, group: str, client: str) -> None:
        """Emit "given_back", if somebody watches, at the place of a message that failed."""
        if self._tracer.watching:
            self._emit(
                "given_back",
                message,
                (
                    message.topic,
                    message.queue_id,
                    message.queue_offset,
                    message.commit_log_offset,
                ),
                store_size=message.store_size,
                group=group,
                client=client,
                reconsume_times=message.reconsume_times,
            )

    def dead(
        self,
        message: MessageExt,
        place: tuple[str, int],
        result: PutMessageResult,
        group: str,
        client: str,
    ) -> None:
        """Emit "dead", if somebody watches, at the place of the copy that is the dead letter."""
        if self._tracer.watching:
            self._emit(
                "dead",
                message,
                (*place, result.queue_offset, result.commit_log_offset),
                store_size=result.wrote_size,
                group=group,
                client=client,
                reconsume_times=message.reconsume_times,
            )

    def _emit(
        self, stage: str, message: MessageExt, place: tuple[str, int, int, int], **more: object
    ) -> None:
        topic, queue_id, queue_offset, commit_log_offset = place
        self._tracer.emit(
            stage,
            topic,
            queue_id,
            queue_offset,
            message.properties,
            commit_log_offset=str(commit_log_offset),
            body_size=len(message.body),
            offset_msg_id=offset_msg_id(self._store_host, commit_log_offset),
            **more,
        )
