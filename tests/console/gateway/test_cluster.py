"""The contract of ClusterGateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.gateway.answers import RuntimeInfo
from console.gateway.errors import RequestFailedError
from console.gateway.requests.cluster import refusal
from tests.console.gateway.support import ask

if TYPE_CHECKING:
    from console.gateway.ports import Gateway


async def test_one_broker_is_registered(gateway: Gateway) -> None:
    cluster = await ask(gateway.cluster.registered)

    [node] = cluster.masters
    assert node.broker_name == "broker-a"
    assert node.is_master


async def test_runtime_figures_are_known(gateway: Gateway) -> None:
    [info] = (await ask(gateway.cluster.runtime)).values()

    assert isinstance(info, RuntimeInfo)
    assert info.version == "V4_9_7"
    for name in ("uptime_s", "put_tps", "get_tps", "put_today", "commit_log_disk_ratio"):
        assert getattr(info, name) is not None, name
    assert info.store_refuses is None
    assert info.damaged_ranges == 0
    assert (info.unreachable_messages, info.unreachable_topics) == (0, ())


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (None, None),
        ("running", None),
        ("stopped", None),
        ("slave: messages come from the master", None),
        ("read-only: the disk is full", "the disk is full"),
        (
            "read-only after a failed write to the disk: [Errno 5] Input/output error; restart",
            "a failed write to the disk: [Errno 5] Input/output error; restart",
        ),
        ("read-only", ""),
    ],
)
def test_the_reason_why_a_store_accepts_no_messages_is_in_its_state(
    state: str | None, reason: str | None
) -> None:
    assert refusal(state) == reason


async def test_a_master_is_not_promoted(gateway: Gateway) -> None:
    [node] = (await ask(gateway.cluster.registered)).masters

    with pytest.raises(RequestFailedError, match="already a master"):
        await ask(lambda: gateway.cluster.promote(node, force=True))


async def test_a_live_key_is_changed_and_another_is_rejected(gateway: Gateway) -> None:
    (node,) = (await ask(gateway.cluster.registered)).nodes

    before = {each.key: each for each in await ask(gateway.cluster.configuration, node)}
    target = {"transactionCheckMax": "31"}
    await ask(gateway.cluster.configure, node, target)
    after = {each.key: each for each in await ask(gateway.cluster.configuration, node)}
    with pytest.raises(RequestFailedError):
        await ask(gateway.cluster.configure, node, {"listenPort": "1", "transactionCheckMax": "32"})

    limit = after["transactionCheckMax"]
    assert (limit.value, limit.default, limit.is_live, limit.kind) == ("31", "15", True, "int")
    assert limit.is_changed
    assert not before["listenPort"].is_live
    assert before["traceOn"].choices == ("true", "false")
    left = {each.key: each.value for each in await ask(gateway.cluster.configuration, node)}
    assert left["transactionCheckMax"] == "31"


async def test_a_broker_reports_its_running_work(gateway: Gateway) -> None:
    [node] = (await ask(gateway.cluster.registered)).masters

    inside = await ask(gateway.cluster.internals, node)

    assert "MainThread" in {each.name for each in inside.threads}
    assert inside.cpu_ms > 0
    assert inside.quarantine == []
