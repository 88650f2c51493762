"""Name server requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway.naming import NameServerView, RouteQueues
from console.gateway.requests.call import body_of, call, reading
from console.gateway.requests.cluster import cluster_info

if TYPE_CHECKING:
    from console.gateway.requests.call import Ask


async def view(ask: Ask, address: str, topic: str, namespace: str) -> NameServerView:
    """Return a name server's data; the route is skipped if the topic is empty."""
    return NameServerView(
        nodes=await cluster_info(ask, address),
        entries=await entries(ask, address, namespace),
        route=await route(ask, address, topic) if topic else None,
    )


async def entries(ask: Ask, address: str, namespace: str) -> dict[str, str]:
    code = RequestCode.GET_KVLIST_BY_NAMESPACE
    missing = frozenset({int(ResponseCode.QUERY_NOT_FOUND)})
    answer = await call(ask, address, code, {"namespace": namespace}, also=missing)
    if answer.code in missing:
        return {}
    with reading(address, code):
        return {str(key): str(value) for key, value in body_of(answer)["table"].items()}


async def route(ask: Ask, address: str, topic: str) -> tuple[RouteQueues, ...] | None:
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    missing = frozenset({int(ResponseCode.TOPIC_NOT_EXIST)})
    fields = {"topic": topic, "acceptStandardJsonOnly": True}
    answer = await call(ask, address, code, fields, also=missing)
    if answer.code in missing:
        return None
    with reading(address, code):
        return tuple(
            RouteQueues(
                str(each["brokerName"]),
                int(each["readQueueNums"]),
                int(each["writeQueueNums"]),
                int(each["perm"]),
            )
            for each in body_of(answer).get("queueDatas") or ()
        )


async def put(ask: Ask, address: str, namespace: str, key: str, value: str) -> None:
    fields = {"namespace": namespace, "key": key, "value": value}
    await call(ask, address, RequestCode.PUT_KV_CONFIG, fields)


async def remove(ask: Ask, address: str, namespace: str, key: str) -> None:
    fields = {"namespace": namespace, "key": key}
    await call(ask, address, RequestCode.DELETE_KV_CONFIG, fields)


async def set_writable(ask: Ask, address: str, broker_name: str, *, is_writable: bool) -> int:
    """Grant or revoke a broker's write permission in all routes; return the number of topics."""
    code = (
        RequestCode.ADD_WRITE_PERM_OF_BROKER
        if is_writable
        else RequestCode.WIPE_WRITE_PERM_OF_BROKER
    )
    answer = await call(ask, address, code, {"brokerName": broker_name})
    with reading(address, code):
        return int(answer.ext_fields["addTopicCount" if is_writable else "wipeTopicCount"])
