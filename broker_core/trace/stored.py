"""Emit the events of messages that the broker stores again or discards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.message.ids import offset_msg_id
from broker_core.message.names import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    group_of,
    is_retry_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_core.message.message import MessageExt
    from broker_core.store.results import PutMessageResult
    from broker_core.trace.tracer import Tracer

    RetriesOf = Callable[[str], int | None]
    """Number of attempts after which a group gives up a message; None for an unknown group."""
    DelayOf = Callable[[int], int]
    """Milliseconds of a delay level."""


class StoredTrace:
    """Reports deferred messages and copies to watchers. Event loop only."""

    def __init__(
        self, tracer: Tracer, store_host: bytes, retries_of: RetriesOf, delay_of: DelayOf
    ) -> None:
        self._tracer = tracer
        self._store_host = store_host
        self._retries_of = retries_of
        self._delay_of = delay_of

    def due(self, message: MessageExt, topic: str, queue_id: int, result: PutMessageResult) -> None:
        """Emit "stored" for a deferred message that is due, or "retried" for a retry.

        The latency is the wait since it was first stored or given back. The born time of a retry
        can't be used, because it belongs to the first attempt.
        """
        if self._tracer.watching:
            self._put(message, (topic, queue_id), result)

    def committed(
        self, message: MessageExt, topic: str, queue_id: int, result: PutMessageResult
    ) -> None:
        """Emit "committed" for a half message, and "stored" for the message it became."""
        if self._tracer.watching:
            self._decided("committed", message)
            self._put(message, (topic, queue_id), result)

    def rolled_back(self, message: MessageExt) -> None:
        """Emit "rolled_back" for a half message."""
        if self._tracer.notes_errors:
            self._decided("rolled_back", message)

    def checked(self, message: MessageExt) -> None:
        """Emit "checked" for a half message when its producer is asked for the outcome."""
        if self._tracer.watching:
            times = message.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES, "")
            self._half("checked", message, check_times=int(times) if times.isdecimal() else None)

    def given_back(self, message: MessageExt, group: str, client: str) -> None:
        """Emit "given_back" at the location of a failed message."""
        if self._tracer.notes_errors:
            place = (message.topic, message.queue_id, message.queue_offset)
            self._emit(
                "given_back",
                message,
                place,
                message.commit_log_offset,
                store_size=message.store_size,
                group=group,
                client=client,
                reconsume_times=message.reconsume_times,
                reconsume_max=self._retries_of(group),
            )

    def deferred(
        self,
        message: MessageExt,
        table: Mapping[str, str],
        topic: str,
        result: PutMessageResult,
        client: str,
    ) -> None:
        """Emit "deferred" for the copy of a returned message, with its destination topic."""
        if self._tracer.watching:
            level = int(table[PROPERTY_DELAY_TIME_LEVEL])
            self._copied(
                "deferred",
                message,
                table,
                (topic, int(table[PROPERTY_REAL_QUEUE_ID]), None),
                result,
                group=group_of(topic),
                client=client,
                delay_level=level,
                due_ms=str(result.store_timestamp + self._delay_of(level)),
                reconsume_times=message.reconsume_times + 1,
                reconsume_max=self._retries_of(group_of(topic) or ""),
            )

    def dead(
        self,
        message: MessageExt,
        table: Mapping[str, str],
        place: tuple[str, int],
        result: PutMessageResult,
        group: str,
        client: str,
    ) -> None:
        """Emit "dead" at the location of the dead letter."""
        if self._tracer.notes_errors:
            self._copied(
                "dead",
                message,
                table,
                (*place, result.queue_offset),
                result,
                group=group,
                client=client,
                reconsume_times=message.reconsume_times,
                reconsume_max=self._retries_of(group),
            )

    def expired(self, group: str, topic: str, queue_id: int, first: int, end: int) -> None:
        """Emit "expired" for messages of a queue that expired before a group read them."""
        if self._tracer.notes_errors:
            self._tracer.emit("expired", topic, queue_id, end, from_offset=str(first), group=group)

    def _put(self, message: MessageExt, place: tuple[str, int], result: PutMessageResult) -> None:
        topic, queue_id = place
        is_retried = is_retry_topic(topic)
        group = group_of(topic)
        self._copied(
            "retried" if is_retried else "stored",
            message,
            message.properties,
            (topic, queue_id, result.queue_offset),
            result,
            producer_group=message.properties.get(PROPERTY_PRODUCER_GROUP),
            group=group,
            client=message.born_host,
            latency_us=max(0, result.store_timestamp - message.store_timestamp) * 1000,
            reconsume_times=message.reconsume_times or None,
            reconsume_max=self._retries_of(group) if is_retried and group else None,
        )

    def _copied(
        self,
        stage: str,
        message: MessageExt,
        table: Mapping[str, str],
        place: tuple[str, int, int | None],
        result: PutMessageResult,
        **more: Any,
    ) -> None:
        """Emit an event for a copy that was just stored with these properties.

        A first copy names the message it was made from; the message itself has no such property.
        """
        self._tracer.stored(
            stage,
            *place,
            table,
            commit_log_offset=result.commit_log_offset,
            store_size=result.wrote_size,
            body_size=len(message.body),
            offset_msg_id=offset_msg_id(self._store_host, result.commit_log_offset),
            **more,
        )

    def _decided(self, stage: str, message: MessageExt) -> None:
        waited_ms = self._tracer.now_ms() - message.store_timestamp
        self._half(stage, message, latency_us=max(0, waited_ms) * 1000)

    def _half(self, stage: str, message: MessageExt, **more: Any) -> None:
        """Emit an event of a half message, in its destination topic."""
        get = message.properties.get
        queue_id = get(PROPERTY_REAL_QUEUE_ID, "")
        place = (
            get(PROPERTY_REAL_TOPIC, message.topic),
            int(queue_id) if queue_id.isdecimal() else None,
            None,
        )
        self._emit(
            stage,
            message,
            place,
            message.commit_log_offset,
            store_size=message.store_size,
            producer_group=get(PROPERTY_PRODUCER_GROUP),
            client=message.born_host,
            **more,
        )

    def _emit(
        self,
        stage: str,
        message: MessageExt,
        place: tuple[str, int | None, int | None],
        commit_log_offset: int,
        **more: Any,
    ) -> None:
        self._tracer.emit(
            stage,
            *place,
            message.properties,
            commit_log_offset=str(commit_log_offset),
            body_size=len(message.body),
            offset_msg_id=offset_msg_id(self._store_host, commit_log_offset),
            **more,
        )
