"""The status request that a broker forwards to a consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway.answers import Subscription
from console.gateway.errors import GatewayError, RequestFailedError
from console.gateway.requests.call import body_of, call, queue_of, reading, timestamp
from console.gateway.running import RunningInfo, RunningQueue, RunningTopic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.requests.call import Ask

CONSUMER_TIMEOUT_S = 8.0
"""Brokers wait ten seconds for a client, and pages wait as long for brokers."""
THREADS_CHARACTERS_MAX = 1 << 20


async def running_info(
    ask: Ask, address: str, group: str, client_id: str, *, with_threads: bool
) -> RunningInfo:
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": with_threads}
    try:
        answer = await call(ask, address, code, fields, timeout_s=CONSUMER_TIMEOUT_S)
    except RequestFailedError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        # The client's own remark, forwarded by the broker.
        raise GatewayError(_("This client doesn't report its status.")) from error
    with reading(address, code):
        return read(client_id, body_of(answer))


def read(client_id: str, data: Mapping[str, Any]) -> RunningInfo:
    queues = []
    for key, each in (data.get("mqTable") or {}).items():
        queues.append(
            RunningQueue(
                queue=queue_of(key),
                commit_offset=whole(each.get("commitOffset")),
                cached_messages=whole(each.get("cachedMsgCount")),
                last_pull_ms=timestamp(each.get("lastPullTimestamp", 0)),
                last_consume_ms=timestamp(each.get("lastConsumeTimestamp", 0)),
                is_locked=bool(each.get("locked")),
                # The client's spelling.
                is_dropped=bool(each.get("droped")),
            )
        )
    topics = [
        RunningTopic(
            topic=str(topic),
            consume_rt_ms=fraction(each.get("consumeRT")),
            ok_tps=fraction(each.get("consumeOKTPS")),
            failed_tps=fraction(each.get("consumeFailedTPS")),
            failed_last_hour=whole(each.get("consumeFailedMsgs")),
        )
        for topic, each in sorted((data.get("statusTable") or {}).items())
    ]
    subscriptions = [
        Subscription(
            topic=str(each.get("topic", "")),
            expression_type=str(each.get("expressionType") or "TAG"),
            sub_string=str(each.get("subString") or "*"),
        )
        for each in data.get("subscriptionSet") or ()
    ]
    return RunningInfo(
        client_id=client_id,
        properties={str(key): str(value) for key, value in (data.get("properties") or {}).items()},
        subscriptions=tuple(sorted(subscriptions, key=lambda each: each.topic)),
        queues=tuple(sorted(queues, key=lambda each: each.queue)),
        topics=tuple(topics),
        threads=str(data.get("jstack") or "")[:THREADS_CHARACTERS_MAX],
    )


def whole(value: object) -> int | None:
    return None if value is None else int(str(value))


def fraction(value: object) -> float | None:
    return None if value is None else float(str(value))
