"""RefusalTrace: report refused requests about messages, and the reason, to watchers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker_core.message import names, properties
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.headers.send_message import LONG_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.clients.consumers import Consumers
    from broker_core.clock import Clock
    from broker_core.errors import RequestRefusedError
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.trace.tracer import Tracer

SHORT_HEADERS = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
TRACED: Mapping[int, str] = {
    int(code): code.name
    for code in (
        *SHORT_HEADERS,
        RequestCode.SEND_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    )
}
NAME_CHARS_MAX = 255
QUEUE_ID = re.compile("[0-9]{1,9}")
REMARK_CHARS_MAX = 500
"""Remarks can contain text sent by clients."""


class RefusalTrace:
    """Emits events while a watcher is active. Event loop only."""

    def __init__(self, tracer: Tracer, consumers: Consumers, clock: Clock) -> None:
        self._tracer = tracer
        self._consumers = consumers
        self._clock = clock

    def refused(
        self,
        request: RemotingCommand,
        connection: Connection,
        refusal: RequestRefusedError,
        received_s: float,
    ) -> None:
        """Emit "refused" if a watcher is active and the request is about messages.

        `received_s` is the monotonic time when its bytes had arrived; 0 if unknown.
        """
        asked = TRACED.get(request.code) if self._tracer.notes_errors else None
        if asked is None:
            return
        fields = request.with_texts().ext_fields or {}
        if request.code in SHORT_HEADERS:
            fields = {LONG_NAMES.get(name, name): value for name, value in fields.items()}

        def field(*either: str) -> str | None:
            text = next((fields[name] for name in either if fields.get(name)), None)
            return None if text is None else text[:NAME_CHARS_MAX]

        queue_id = field("queueId") or ""
        topic = field("topic", "originTopic") or ""
        group = field("group", "consumerGroup") or names.group_of(topic)
        self._tracer.emit(
            "refused",
            topic,
            int(queue_id) if QUEUE_ID.fullmatch(queue_id) else None,
            None,
            properties.decode(fields.get("properties") or ""),
            body_size=len(request.body) or None,
            producer_group=field("producerGroup"),
            group=group,
            client=connection.remote_address,
            client_id=self._consumers.client_id_of(group, connection) if group else None,
            latency_us=max(0, round((self._clock.monotonic() - received_s) * 1_000_000))
            if received_s
            else None,
            steps={"received": 0} if received_s else None,
            request=asked,
            code=int(refusal.code),
            code_name=_name_of(refusal.code),
            remark=(refusal.remark or "")[:REMARK_CHARS_MAX] or None,
        )


def _name_of(code: int) -> str | None:
    try:
        return ResponseCode(code).name
    except ValueError:
        return None
