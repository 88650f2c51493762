"""SendTrace: report the messages that clients send to watchers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core.errors import CorruptRecordError
from broker_core.formats.record import decode
from broker_core.message import names
from broker_core.message.ids import host_text
from broker_core.message.names import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQ_KEY,
)
from broker_core.message.properties import decode as decode_properties
from broker_core.trace.event import PROPERTY_REPLAYED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker_core.protocol.headers.send_message import SendHeader
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import PutBatchResult, PutMessageResult
    from broker_core.trace.tracer import Tracer

logger = logging.getLogger(__name__)

WAITING = {
    names.RMQ_SYS_TRANS_HALF_TOPIC: "withheld",
    names.RMQ_SYS_SCHEDULE_TOPIC: "deferred",
    names.RMQ_SYS_TIMER_TOPIC: "deferred",
}
SLOW_PUT_S = 0.01
"""From request to answer; the recorder keeps slower puts."""


class PlainSend(NamedTuple):
    """A plain send of the native turn that a watcher may want."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_size: int
    body_size: int
    properties: str
    producer_group: str
    born_timestamp: int
    reconsume_times: int
    validated_s: float
    appended_s: float
    dispatched_s: float


class SendTrace:
    """Emits events; check `tracer.watching` first. Event loop only.

    Attributes:
        tracer: receives the events.
    """

    def __init__(
        self,
        tracer: Tracer,
        store: MessageStore,
        store_host: bytes,
        retries_of: Callable[[str], int | None],
        delay_of: Callable[[int], int],
    ) -> None:
        self.tracer = tracer
        self._store = store
        self._msg_id = store_host.hex().upper() + "%016X"
        self._retries_of = retries_of
        self._delay_of = delay_of

    def stored(
        self,
        header: SendHeader,
        connection: Connection,
        place: tuple[str, int],
        result: PutMessageResult,
        table: Mapping[str, str],
        body_size: int,
        validated_s: float,
    ) -> None:
        """Emit "stored", "retried" or "replayed"."""
        topic, queue_id = place
        if not self.tracer.selection.wants(topic, table.get(PROPERTY_UNIQ_KEY)):
            return
        more: dict[str, Any] = {}
        group = names.group_of(header.topic)
        if group is not None and names.is_retry_topic(topic) and header.reconsume_times:
            stage = "retried"
            more["reconsume_max"] = header.max_reconsume_times or self._retries_of(group)
        else:
            stage = stage_of(table)
        self.tracer.stored(
            stage,
            topic,
            queue_id,
            result.queue_offset,
            table,
            commit_log_offset=result.commit_log_offset,
            store_size=result.wrote_size,
            body_size=body_size,
            offset_msg_id=self._msg_id % result.commit_log_offset,
            producer_group=header.producer_group or None,
            group=group,
            client=connection.remote_address,
            latency_us=max(0, result.store_timestamp - header.born_timestamp) * 1000,
            steps=self._steps(connection, validated_s),
            reconsume_times=header.reconsume_times or None,
            replay=table.get(PROPERTY_REPLAYED),
            **more,
        )

    def dead(
        self,
        header: SendHeader,
        connection: Connection,
        place: tuple[str, int],
        result: PutMessageResult,
        table: Mapping[str, str],
        body_size: int,
        validated_s: float,
    ) -> None:
        """Emit "dead" for a retry that became a dead letter; the recorder keeps it too.

        `validated_s` is 0 without a watcher; only watchers get the steps.
        """
        self._emit(
            "dead",
            header,
            connection,
            place,
            result,
            table,
            body_size,
            result.queue_offset,
            steps=self._steps(connection, validated_s) if validated_s else None,
        )

    def waits(
        self,
        header: SendHeader,
        connection: Connection,
        place: tuple[str, int],
        result: PutMessageResult,
        table: Mapping[str, str],
        body_size: int,
        validated_s: float,
    ) -> None:
        """Emit "withheld" for a half message, "deferred" for a delayed message."""
        more: dict[str, Any] = {}
        stage = "deferred"
        if PROPERTY_TIMER_OUT_MS in table:
            more["due_ms"] = table[PROPERTY_TIMER_OUT_MS]
        elif PROPERTY_DELAY_TIME_LEVEL not in table:
            stage = "withheld"
        else:
            level = int(table[PROPERTY_DELAY_TIME_LEVEL])
            more["delay_level"] = level
            more["due_ms"] = str(result.store_timestamp + self._delay_of(level))
        self._emit(
            stage,
            header,
            connection,
            place,
            result,
            table,
            body_size,
            latency_us=max(0, result.store_timestamp - header.born_timestamp) * 1000,
            steps=self._steps(connection, validated_s),
            **more,
        )

    def batch(
        self,
        header: SendHeader,
        connection: Connection,
        queue_id: int,
        result: PutBatchResult,
        validated_s: float,
    ) -> None:
        """Emit "stored" for each message of a batch, with fields from its record."""
        steps = self._steps(connection, validated_s)
        for index, commit_log_offset in enumerate(result.commit_log_offsets):
            record = self._store.look_message(commit_log_offset)
            message = None if record is None else decode(record)
            self.tracer.stored(
                "stored",
                header.topic,
                queue_id,
                result.queue_offset + index,
                None if message is None else message.properties,
                commit_log_offset=commit_log_offset,
                store_size=0 if message is None else message.store_size,
                body_size=message and len(message.body),
                offset_msg_id=self._msg_id % commit_log_offset,
                producer_group=header.producer_group or None,
                client=connection.remote_address,
                latency_us=max(0, result.store_timestamp - header.born_timestamp) * 1000,
                steps=steps,
            )

    def trace_plain_sends(
        self,
        sends: Sequence[tuple[Any, ...]],
        born_host: bytes,
        store_timestamp: int,
        received_s: float,
    ) -> None:
        """Emit "stored" for the plain sends of a turn. Never raises: they are answered."""
        try:
            client = host_text(born_host)
            for send in sends:
                self._emit_plain_send(PlainSend._make(send), client, store_timestamp, received_s)
        except Exception:
            logger.exception("plain sends not traced count=%d", len(sends))

    def _emit_plain_send(
        self, send: PlainSend, client: str, store_timestamp: int, received_s: float
    ) -> None:
        table = decode_properties(send.properties)
        self.tracer.stored(
            stage_of(table),
            send.topic,
            send.queue_id,
            send.queue_offset,
            table,
            commit_log_offset=send.commit_log_offset,
            store_size=send.store_size,
            body_size=send.body_size,
            offset_msg_id=self._msg_id % send.commit_log_offset,
            producer_group=send.producer_group or None,
            client=client,
            latency_us=max(0, store_timestamp - send.born_timestamp) * 1000,
            steps=_steps(received_s, send.validated_s, send.appended_s, send.dispatched_s),
            reconsume_times=send.reconsume_times or None,
            replay=table.get(PROPERTY_REPLAYED),
        )

    def _emit(
        self,
        stage: str,
        header: SendHeader,
        connection: Connection,
        place: tuple[str, int],
        result: PutMessageResult,
        table: Mapping[str, str],
        body_size: int,
        queue_offset: int | None = None,
        **more: Any,
    ) -> None:
        """Emit a stage of a send that was stored in another topic."""
        topic, queue_id = place
        self.tracer.stored(
            stage,
            topic,
            queue_id,
            queue_offset,
            table,
            commit_log_offset=result.commit_log_offset,
            store_size=result.wrote_size,
            body_size=body_size,
            offset_msg_id=self._msg_id % result.commit_log_offset,
            producer_group=header.producer_group or None,
            group=names.group_of(header.topic),
            client=connection.remote_address,
            reconsume_times=header.reconsume_times or None,
            **more,
        )

    def slow_offset(self, commit_log_offset: int, took_s: float) -> None:
        """Record a put slower than SLOW_PUT_S, with the message at its offset."""
        if not self.tracer.recorder.is_on:
            return
        try:
            record = self._store.look_message(commit_log_offset)
            message = None if record is None else decode(record)
        except CorruptRecordError:
            return
        if message is not None:
            # Report waiting messages under their destination topic, where they have no offset yet.
            stage = WAITING.get(message.topic)
            real_topic = message.properties.get(names.PROPERTY_REAL_TOPIC, message.topic)
            self.tracer.keep(
                stage or "stored",
                real_topic if stage else message.topic,
                None if stage else message.queue_id,
                None if stage else message.queue_offset,
                message.properties,
                commit_log_offset=str(commit_log_offset),
                store_size=message.store_size,
                body_size=len(message.body),
                offset_msg_id=self._msg_id % commit_log_offset,
                client=message.born_host,
                latency_us=round(took_s * 1_000_000),
            )

    def _steps(self, connection: Connection, validated_s: float) -> dict[str, int]:
        state = self._store.files.put_state
        received_s = connection.turn_began or validated_s
        return _steps(received_s, validated_s, state.appended_at, state.dispatched_at)


def stage_of(table: Mapping[str, str]) -> str:
    """Return the stage of a send that is stored immediately: a replay or a normal send."""
    return "replayed" if PROPERTY_REPLAYED in table else "stored"


def _steps(
    received_s: float, validated_s: float, appended_s: float, dispatched_s: float
) -> dict[str, int]:
    def since(at_s: float) -> int:
        return max(0, round((at_s - received_s) * 1_000_000))

    return {
        "received": 0,
        "validated": since(validated_s),
        "appended": since(appended_s),
        "dispatched": since(dispatched_s),
    }
