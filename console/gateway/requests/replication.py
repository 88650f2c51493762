"""Replication requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.protocol.codes import RequestCode
from console.gateway.answers import BrokerNode, Replication, SlaveLink
from console.gateway.requests.call import body_of, call, reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.requests.call import Ask


async def replication(ask: Ask, node: BrokerNode, read_at_ms: int) -> Replication:
    code = RequestCode.GET_BROKER_HA_STATUS
    answer = await call(ask, node.address, code)
    with reading(node.address, code):
        body = body_of(answer)
        is_master = bool(body["master"])
        client = body.get("haClientRuntimeInfo") or {}
        end = body["masterCommitLogMaxOffset"] if is_master else client["maxOffset"]
        metadata = body.get("metadata") or {}
        return Replication(
            node=node,
            read_at_ms=read_at_ms,
            is_master=is_master,
            max_offset=int(end),
            links=tuple(_link(one) for one in body.get("haConnectionInfo") or ()),
            is_following=bool(client.get("activated")),
            master_address=str(client.get("masterAddr") or ""),
            local_address=str(client.get("localAddr") or ""),
            reason=str(client.get("reason") or ""),
            metadata_failures=tuple(
                f"{what}: {why}" for what, why in (metadata.get("failures") or {}).items()
            ),
        )


def _link(one: Mapping[str, Any]) -> SlaveLink:
    return SlaveLink(
        address=str(one["addr"]),
        behind_bytes=max(0, int(one["diff"])),
        behind_ms=_optional(one.get("behindMillis")),
        last_contact_ms=_optional(one.get("lastContactMillisAgo")),
        bytes_a_second=int(one.get("transferredByteInSecond") or 0),
        is_in_sync=bool(one.get("inSync")),
    )


def _optional(value: Any) -> int | None:
    return None if value is None else int(value)
