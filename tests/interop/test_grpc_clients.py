"""The published gRPC clients for Java, Python and Node, against our broker."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_java
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import certificate
from tests.support.grpc_clients import (
    java_command,
    node_command,
    node_missing,
    outcomes,
    python_command,
)
from tests.support.ports import accepts, free_port
from tests.support.raw_remoting import (
    GET_MAX_OFFSET,
    UPDATE_AND_CREATE_TOPIC,
    RawClient,
    topic_fields,
)
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1_200)]

CLIENTS = ("java", "python", "node")
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
    "tls": "NORMAL",
}
"""The kinds of the topics; each client has its own topics."""
RETRIES = {"fifo": 16, "fifo-push": 16, "dead": 1}
"""The maximum number of retries of each ordered group."""
KEYS = {
    "mappedFileSizeCommitLog": 64 << 20,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
}
ACCOUNT = ("interop", "interop-secret")
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
    "tls": "hello A [k1, k2] {colour=red} attempt 1",
    "wrong secret": "UnauthorizedException 40100",
}
SECURED = ("tls", "wrong secret")
CLEARTEXT = tuple(each for each in EXPECTED if each not in (*SECURED, DEAD_LETTERS))
NODE_RETRIES = "[first attempt 1, second attempt 1]"
PYTHON_RETRIES = "[first attempt 1, first attempt 1, second attempt 1]"
DIFFERENT_BY_CLIENT = {
    # Node's client 1.0.8 doesn't implement the default policy of retries: in an ordered group, a
    # message moves to the dead letters after its first failure.
    ("node", "fifo push"): NODE_RETRIES,
    ("node", "dead letter"): NODE_RETRIES,
    # Python's client 5.1.2 doesn't count its own retries in the message.
    ("python", "fifo push"): PYTHON_RETRIES,
    ("python", "dead letter"): PYTHON_RETRIES,
    # It doesn't pass on why a route was refused.
    ("python", "wrong secret"): "Exception: failed to fetch topic:python-tls route.",
}

Outcomes = dict[str, dict[str, str]]
Commands = dict[str, list[str]]
Certificate = tuple["Path", "Path"]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    require_java()
    if node_missing():
        pytest.skip(f"{node_missing()} is missing")
    return {
        "java": java_command(tmp_path_factory.mktemp("java")),
        "python": python_command(),
        "node": node_command(tmp_path_factory.mktemp("node")),
    }


@pytest.fixture(scope="module")
def found(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """The outcomes of each client."""
    root = tmp_path_factory.mktemp("grpc")
    return run_ours(commands, root, certificate(root, "broker"))


def run_ours(commands: Commands, root: Path, made: Certificate) -> Outcomes:
    """Run all steps: those over TLS with a broker that has accounts, the others with another."""
    grpc_port = free_port()
    broker = BrokerProcess(root / "ours", grpcListenPort=grpc_port, **KEYS)
    guarded_port = free_port()
    guarded = guarded_broker(root / "guarded", guarded_port, made)
    try:
        broker.start()
        guarded.start()
        with RawClient(broker.port) as admin:
            create_topics_and_groups(admin)
        for port in (grpc_port, guarded_port):
            until(lambda: accepts(port), "the gRPC port")  # noqa: B023
        return run_clients(commands, root / "ours", broker.port, (grpc_port, guarded_port))
    finally:
        broker.stop()
        guarded.stop()


def run_clients(commands: Commands, home: Path, port: int, grpc_ports: tuple[int, int]) -> Outcomes:
    """Run all clients at the same time; return the outcomes."""
    cleartext, secured = grpc_ports

    def run(client: str) -> dict[str, str]:
        def ran(port: int, security: str, names: Iterable[str]) -> dict[str, str]:
            return outcomes(
                commands[client],
                port,
                *names,
                security=security,
                account=ACCOUNT,
                HOME=home,
                GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=home.parent / "broker.pem",
            )

        in_clear = ran(cleartext, "cleartext", CLEARTEXT)
        return in_clear | ran(secured, "tls", SECURED)

    results: Outcomes = {}
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        every = list(pool.map(run, CLIENTS))
    with RawClient(port) as admin:
        for client, found in zip(CLIENTS, every, strict=True):
            letters = {"topic": f"%DLQ%{client}-dead-group", "queueId": "0"}
            found[DEAD_LETTERS] = admin.ask(GET_MAX_OFFSET, letters).fields.get("offset", "0")
            results[client] = found
    return results


def create_topics_and_groups(admin: RawClient) -> None:
    for client in CLIENTS:
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


def guarded_broker(directory: Path, port: int, made: Certificate) -> BrokerProcess:
    """Return a broker with accounts, a certificate, and the topic of each client."""
    certified, key = made
    accounts = directory / "plain_acl.yml"
    topics = {
        f"{client}-tls": {
            "topicName": f"{client}-tls",
            "readQueueNums": 4,
            "writeQueueNums": 4,
            "perm": 6,
        }
        for client in CLIENTS
    }
    config = directory / "store" / "config"
    config.mkdir(parents=True)
    accounts.write_text(ACCOUNTS)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    keys = {
        "grpcListenPort": port,
        "aclEnable": "true",
        "aclFile": accounts,
        "tls.test.mode.enable": "false",
        "tls.server.certPath": certified,
        "tls.server.keyPath": key,
    }
    return BrokerProcess(directory, **keys)


@pytest.mark.parametrize("step", EXPECTED)
@pytest.mark.parametrize("client", CLIENTS)
def test_each_step_has_the_expected_outcome(found: Outcomes, client: str, step: str) -> None:
    assert found[client][step] == DIFFERENT_BY_CLIENT.get((client, step), EXPECTED[step])
