from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.broker import running_broker
from tests.support.client import Client, json_body
from tests.support.clock import ManualClock
from tests.support.time_steps import pass_time

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.protocol.command import RemotingCommand


async def test_a_lagging_group_is_rejected_and_shown_until_it_is_reconfigured(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running_broker(
        tmp_path,
        clock=clock,
        disableConsumeIfConsumerReadSlowly="true",
        consumerFallbehindThreshold=10_000,
    ) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        for _ in range(20):
            await client.send("T", bytes(1_000))
        assert (await client.pull("T", 0, group="slow", max_msg_nums=1)).code == 0
        assert (await client.pull("T", 19, group="quick")).code == 0

        await pass_time(clock, 180_000)

        refused = await client.pull("T", 1, group="slow")
        assert refused.code == ResponseCode.NO_PERMISSION
        assert (await client.pull("T", 19, group="quick")).code == 0
        listed = await client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = json_body(listed)["subscriptionGroupTable"]
        assert (table["slow"]["consumeEnable"], table["quick"]["consumeEnable"]) == (False, True)
        info = json_body(await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert info["slowConsumerGroups"] == "slow"

        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"slow"}')
        assert (await client.pull("T", 1, group="slow")).code == 0
        info = json_body(await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert info["slowConsumerGroups"] == ""
        await client.shutdown()


async def test_it_can_be_switched_on_and_off_while_the_broker_runs(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock, consumerFallbehindThreshold=10_000) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        for _ in range(20):
            await client.send("T", bytes(1_000))

        async def switched(value: str) -> RemotingCommand:
            body = f"disableConsumeIfConsumerReadSlowly={value}\n".encode()
            assert (await client.ask(RequestCode.UPDATE_BROKER_CONFIG, body)).code == 0
            assert (await client.pull("T", 0, group=f"slow-{value}", max_msg_nums=1)).code == 0
            await pass_time(clock, 180_000)
            return await client.pull("T", 1, group=f"slow-{value}")

        assert (await switched("true")).code == ResponseCode.NO_PERMISSION
        assert (await switched("false")).code == ResponseCode.SUCCESS
        await client.shutdown()
