"""The demo traffic over gRPC with a real broker, and its refusals."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from broker_core.protocol.signature import Credentials
from console.demo.grpc_traffic import CONSUMER_GROUP, GrpcTraffic
from console.demo.workload import DemoError
from console.gateway.fakes.gateway import fake_gateway
from console.gateway.remote import grpc_client
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.long_timeouts import PATIENCE_S
from tests.support.ports import free_port
from tests.support.waiting import until as until_true

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from console.gateway.ports import Gateway

TIMEOUT_S = 5.0
ACCOUNTS = "accounts: [{accessKey: console, secretKey: '12345678', admin: true}]"
CLIENT = ("PYTHON", "v5_1_2")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", grpcListenPort=free_port())
    process.start()
    yield process
    process.kill()


def gateway_of(broker: BrokerProcess) -> Gateway:
    return gateway_to(RemoteBrokers([broker.namesrv], TIMEOUT_S))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # another process does the work


async def stop(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_demo_s_clients_are_listed_with_language_and_version_and_leave(
    served: BrokerProcess, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.demo.grpc_traffic.POSTPONED_SHARE", 0.2)
    said: list[str] = []
    gateway = gateway_of(served)
    traffic = GrpcTraffic(gateway, rate=200, say=said.append, rng=rng)
    running = asyncio.create_task(traffic.run())
    try:
        await until(lambda: traffic.counts.consumed >= 100 and traffic.postponed > 0)
        producers = await asyncio.to_thread(gateway.groups.producers)
        members = (await asyncio.to_thread(gateway.groups.connections, CONSUMER_GROUP)).members
        clients = traffic.client_ids
    finally:
        await stop(running)

    assert {each.group for each in producers} == {"orders", "payments", "telemetry"}
    listed = {(each.client_id, each.language, each.version_name) for each in producers}
    listed |= {(each.client_id, each.language, each.version_name) for each in members}
    assert listed == {(client_id, *CLIENT) for client_id in clients}
    assert traffic.counts.failed == 0
    assert said[0].endswith("over gRPC to 127.0.0.1:" + str(grpc_port_of(served)) + ".")
    assert await asyncio.to_thread(gateway.groups.producers) == ()
    assert not (await asyncio.to_thread(gateway.groups.connections, CONSUMER_GROUP)).is_online


async def test_a_postponed_message_is_received_again(
    served: BrokerProcess, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.demo.grpc_traffic.POSTPONED_SHARE", 1.0)
    monkeypatch.setattr("console.demo.grpc_traffic.POSTPONED_S", 1)
    traffic = GrpcTraffic(gateway_of(served), topics=["orders"], rate=20, rng=rng)
    running = asyncio.create_task(traffic.run())
    try:
        # Only a second delivery is acknowledged.
        await until(lambda: traffic.counts.consumed >= 3)
    finally:
        await stop(running)

    assert traffic.postponed >= traffic.counts.consumed


async def test_the_demo_connects_again_after_the_broker_was_away(
    served: BrokerProcess, rng: random.Random
) -> None:
    said: list[str] = []
    traffic = GrpcTraffic(gateway_of(served), rate=100, say=said.append, rng=rng)
    running = asyncio.create_task(traffic.run())
    try:
        await until(lambda: traffic.counts.consumed >= 20)

        await asyncio.to_thread(served.kill)
        await until(lambda: traffic.counts.failed > 0)
        await asyncio.to_thread(served.start)
        counts = traffic.counts
        sent, consumed = counts.sent, counts.consumed
        await until(lambda: counts.sent > sent + 20 and counts.consumed > consumed + 20)
    finally:
        await stop(running)

    problems = [line for line in said if line.startswith("Problem, retrying: The broker at")]
    assert problems


async def test_brokers_without_a_grpc_port_are_a_refusal_with_a_remedy(
    broker_process: BrokerProcess,
) -> None:
    with pytest.raises(DemoError, match=r"broker-a has no gRPC port\. Set grpcListenPort=8081 "):
        await GrpcTraffic(gateway_of(broker_process)).run()


async def test_a_broker_of_rocketmq_is_a_refusal_too() -> None:
    with pytest.raises(DemoError, match="broker-a has no gRPC port"):
        await GrpcTraffic(fake_gateway()).run()


async def test_a_topic_that_the_broker_refuses_ends_the_demo(served: BrokerProcess) -> None:
    traffic = GrpcTraffic(gateway_of(served), topics=["SCHEDULE_TOPIC_XXXX"])

    with pytest.raises(DemoError, match="The broker refused the demo's clients: The broker at"):
        await traffic.run()


@pytest.mark.parametrize("is_known", [True, False])
async def test_the_demo_signs_its_calls_with_the_console_s_account(
    tmp_path: Path, settings, rng: random.Random, is_known: bool
) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    guarded = BrokerProcess(
        tmp_path / "broker", grpcListenPort=free_port(), aclEnable="true", aclFile=accounts
    )
    settings.TREBUCHET_BROKER_ACCESS_KEY = "console"
    settings.TREBUCHET_BROKER_SECRET_KEY = "12345678"
    settings.TREBUCHET_BROKERS = [f"127.0.0.1:{guarded.port}"]
    traffic = GrpcTraffic(gateway_of(guarded), topics=["orders"], rate=50, rng=rng)
    guarded.start()
    try:
        if not is_known:
            # Only the calls over gRPC have the wrong key.
            credentials = Credentials("console", "87654321")
            with (
                patch.object(grpc_client, "broker_credentials", lambda: credentials),
                pytest.raises(DemoError, match="The broker refused the demo's clients"),
            ):
                await traffic.run()
            return
        running = asyncio.create_task(traffic.run())
        await until(lambda: traffic.counts.consumed >= 3)
        await stop(running)
    finally:
        await asyncio.to_thread(guarded.kill)

    assert traffic.counts.failed == 0


async def test_without_a_name_server_the_demo_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.demo.grpc_traffic.ROUTE_WAIT_S", 0.0)
    nowhere = gateway_to(RemoteBrokers([f"127.0.0.1:{free_port()}"], TIMEOUT_S))

    with pytest.raises(DemoError, match="The demo couldn't start: The name server at 127"):
        await GrpcTraffic(nowhere).run()


def test_the_command_sends_until_it_is_interrupted(served: BrokerProcess, tmp_path: Path) -> None:
    output = tmp_path / "demo.log"
    with output.open("wb") as log:
        demo = subprocess.Popen(
            [sys.executable, "manage.py", "demo", "--grpc", "--rate", "50"],
            cwd=ROOT,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "console.settings",
                "TREBUCHET_NAMESRV": served.namesrv,
                "TREBUCHET_DATA": str(tmp_path),
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until_true(lambda: "over gRPC to" in output.read_text(), "the demo's first line")
        demo.send_signal(signal.SIGINT)
        code = demo.wait(PATIENCE_S)
    finally:
        demo.kill()

    assert code == 0, output.read_text()
    assert "Demo ended: sent " in output.read_text()
    assert "left group=demo-grpc-consumers" in served.words()


def grpc_port_of(broker: BrokerProcess) -> int:
    lines = dict(line.split("=", 1) for line in broker.file.read_text().splitlines())
    return int(lines["grpcListenPort"])
