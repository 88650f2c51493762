"""Requests about connected clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from console.gateway.connections import Connected, Producer
from console.gateway.requests.call import body_of, call, reading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.gateway.answers import BrokerNode
    from console.gateway.requests.call import Ask


async def producers(ask: Ask, node: BrokerNode) -> list[Producer]:
    """Return the clients of all producer groups of a broker."""
    code = RequestCode.GET_ALL_PRODUCER_INFO
    answer = await call(ask, node.address, code)
    with reading(node.address, code):
        return [
            Producer(
                group=str(group),
                client_id=str(each.get("clientId", "")),
                client_addr=str(each.get("remoteIP", "")).removeprefix("/"),
                language=str(each.get("language", "")),
                version=int(each.get("version", 0)),
                last_heartbeat_ms=int(each.get("lastUpdateTimestamp", 0)),
                broker_names=(node.broker_name,),
            )
            for group, clients in (body_of(answer).get("data") or {}).items()
            for each in clients
        ]


async def connected(
    ask: Ask,
    node: BrokerNode,
    client_id: str,
    group: str,
    closing: Iterable[str] | None = None,
) -> list[Connected]:
    """Return a client's connections; close them if `closing` names the groups it may leave.

    RocketMQ brokers don't support this request.
    """
    code = RequestCode.DISCONNECT_CLIENT
    body = b"" if closing is None else java_json.encode({"groups": sorted(closing)})
    fields = {"clientId": client_id, "group": group}
    answer = await call(ask, node.address, code, fields, body)
    with reading(node.address, code):
        return [
            Connected(
                broker_name=node.broker_name,
                client_addr=str(each["clientAddr"]),
                consumer_groups=tuple(str(name) for name in each["consumerGroups"]),
                producer_groups=tuple(str(name) for name in each["producerGroups"]),
            )
            for each in body_of(answer)["connections"]
        ]
