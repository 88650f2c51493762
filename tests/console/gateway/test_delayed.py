"""Delayed messages as their page reads them, from a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.broker.brokers import delays
from console.gateway.answers import MessageQueue
from console.gateway.outgoing import NewMessage
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to
from tests.console.gateway.support import ORDERS, ask
from tests.support.broker import running_broker
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_a_delayed_message_waits_in_its_level_until_it_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as broker:
        port = broker.configuration.broker.namesrv_listen_port
        brokers = RemoteBrokers([f"127.0.0.1:{port}"], PATIENCE_S)
        gateway = gateway_to(brokers)
        monkeypatch.setattr(delays, "gateway", lambda: gateway)
        await ask(gateway.topics.save, ORDERS, ["broker-a"])
        queue = MessageQueue("Orders", "broker-a", 0)
        for key in ("a-1", "a-2"):
            message = NewMessage(queue, b"later", {"DELAY": "18", "KEYS": key})
            await ask(gateway.sending.send, [message])
        (node,) = (await ask(gateway.cluster.registered)).masters

        levels = await ask(delays.levels_of, node)
        waiting, more = await ask(delays.next_in, node, levels[17], 0)
        found = await ask(delays.with_key, node, levels, "a-2")

        assert [each.number for each in levels if each.count] == [18]
        assert levels[17].delay_ms == 7_200_000
        assert [(each.topic, each.stored.keys) for each in waiting] == [
            ("Orders", "a-1"),
            ("Orders", "a-2"),
        ]
        assert more is None
        assert waiting[0].due_ms == waiting[0].stored.store_ms + 7_200_000
        assert [each.stored.queue_offset for each in found] == [1]
        await gateway.messages.close()
        await ask(brokers.close)
