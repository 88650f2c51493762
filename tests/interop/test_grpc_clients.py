"""The published gRPC clients for Java and Node, against our broker."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.conftest import require_java
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import certificate
from tests.support.grpc_clients import STEPS, java_command, node_command, node_missing, outcomes
from tests.support.ports import accepts, free_port
from tests.support.raw_remoting import (
    GET_MAX_OFFSET,
    UPDATE_AND_CREATE_TOPIC,
    RawClient,
    topic_fields,
)
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1_200)]

CLIENTS = ("java", "node")
UPDATE_GROUP = 200
KINDS = {
    "send": "NORMAL",
    "tags": "NORMAL",
    "sql92": "NORMAL",
    "fifo": "FIFO",
    "delay": "DELAY",
    "half": "TRANSACTION",
    "invisible": "NORMAL",
    "push": "NORMAL",
    "fifo-push": "FIFO",
    "dead": "FIFO",
}
"""The kinds of the topics; each client has its own topics."""
RETRIES = {"fifo": 16, "fifo-push": 16, "dead": 1}
"""The maximum number of retries of each ordered group."""
KEYS = {
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
}
DEAD_LETTERS = "dead letters"
EXPECTED = {
    "send": "hello A [k1, k2] {colour=red} attempt 1",
    "tags": "[A, B]",
    "sql92": "[B, C]",
    "fifo": "{g0=[0, 2, 4], g1=[1, 3, 5]}",
    "delay": "[delivered] in time, the recalled message has the same ID: true",
    "transaction": "[committed, forgotten] checked [forgotten]",
    "invisible": "postponed attempts 1, 2",
    "push": "[first attempt 1, first attempt 2]",
    "fifo push": "[first attempt 1, first attempt 2, second attempt 1]",
    "dead letter": "[first attempt 1, first attempt 2, second attempt 1]",
    DEAD_LETTERS: "1",
}
NODE_RETRIES = "[first attempt 1, second attempt 1]"
DIFFERENT_BY_CLIENT = {
    # Node's client 1.0.8 doesn't implement the default policy of retries: in an ordered group, a
    # message moves to the dead letters after its first failure.
    ("node", "fifo push"): NODE_RETRIES,
    ("node", "dead letter"): NODE_RETRIES,
}
ACCOUNTS = """\
accounts:
- accessKey: interop
  secretKey: interop-secret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
- accessKey: administrator
  secretKey: administrator-secret
  admin: true
"""

Outcomes = dict[str, dict[str, str]]


class Commands(NamedTuple):
    """The command of each client."""

    java: list[str]
    node: list[str]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    require_java()
    if node_missing():
        pytest.skip(f"{node_missing()} is missing")
    return Commands(
        java_command(tmp_path_factory.mktemp("java")), node_command(tmp_path_factory.mktemp("node"))
    )


@pytest.fixture(scope="module")
def found(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """The outcomes of each client."""
    port = free_port()
    broker = BrokerProcess(tmp_path_factory.mktemp("ours"), grpcListenPort=port, **KEYS)
    broker.start()
    try:
        yield run_clients(commands, broker.port, port)
    finally:
        broker.stop()


def run_clients(commands: Commands, port: int, grpc_port: int) -> Outcomes:
    """Run both clients at the same time; return the outcomes of each."""
    until(lambda: accepts(grpc_port), "the gRPC port")
    with RawClient(port) as admin:
        for client in CLIENTS:
            create_topics_and_groups(admin, client)
        with ThreadPoolExecutor(len(CLIENTS)) as pool:
            running = {
                client: pool.submit(outcomes, getattr(commands, client), grpc_port, *STEPS)
                for client in CLIENTS
            }
            found = {client: each.result() for client, each in running.items()}
        for client in CLIENTS:
            letters = {"topic": f"%DLQ%{client}-dead-group", "queueId": "0"}
            found[client][DEAD_LETTERS] = admin.ask(GET_MAX_OFFSET, letters).fields["offset"]
    return found


def create_topics_and_groups(admin: RawClient, client: str) -> None:
    for name, kind in KINDS.items():
        fields = {**topic_fields(f"{client}-{name}"), "attributes": f"+message.type={kind}"}
        until(lambda: admin.ask(UPDATE_AND_CREATE_TOPIC, fields).code == 0, f"the topic {name}")  # noqa: B023
    for name, retries in RETRIES.items():
        group = {
            "groupName": f"{client}-{name}-group",
            "consumeMessageOrderly": True,
            "retryMaxTimes": retries,
        }
        assert admin.ask(UPDATE_GROUP, {}, json.dumps(group).encode()).code == 0


@pytest.mark.parametrize("step", EXPECTED)
@pytest.mark.parametrize("client", CLIENTS)
def test_each_step_has_the_expected_outcome(found: Outcomes, client: str, step: str) -> None:
    assert found[client][step] == DIFFERENT_BY_CLIENT.get((client, step), EXPECTED[step])


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """The gRPC port of a broker with accounts and a certificate, and the certificate."""
    certified, key = certificate(tmp_path, "broker")
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    port = free_port()
    topics = {
        f"{client}-send": {
            "topicName": f"{client}-send",
            "readQueueNums": 4,
            "writeQueueNums": 4,
            "perm": 6,
        }
        for client in CLIENTS
    }
    config = tmp_path / "broker" / "store" / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    broker = BrokerProcess(
        tmp_path / "broker",
        **{
            "grpcListenPort": port,
            "aclEnable": "true",
            "aclFile": accounts,
            "tls.test.mode.enable": "false",
            "tls.server.certPath": certified,
            "tls.server.keyPath": key,
        },
    )
    broker.start()
    yield port, certified
    broker.stop()


@pytest.mark.parametrize("client", CLIENTS)
def test_an_account_sends_and_receives_over_tls_but_a_stranger_does_not(
    guarded: tuple[int, Path], commands: Commands, client: str
) -> None:
    port, certified = guarded

    def sent(account: tuple[str, str]) -> str:
        return outcomes(
            getattr(commands, client),
            port,
            "send",
            security="tls",
            account=account,
            GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=certified,
        )["send"]

    assert sent(("interop", "interop-secret")) == EXPECTED["send"]
    assert sent(("interop", "a wrong secret")).startswith("broke off")
