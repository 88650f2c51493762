"""SQL92 consumers and clients with accounts: ours behaves like Apache RocketMQ."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker_core.clock import SystemClock
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from broker_core.protocol.signature import Credentials
from broker_core.remoting.client import RemotingClient
from console.gateway.answers import TopicConfig
from console.gateway.known_addresses import known_addresses
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to
from tests.conftest import require_java
from tests.interop.client_steps import STEPS
from tests.support import outcome_page
from tests.support.broker_process import BrokerProcess
from tests.support.client import Client
from tests.support.outcome_page import OURS, THEIRS
from tests.support.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.java_clients import JavaClients

pytestmark = pytest.mark.interop

SECRET = "12345678"
COUNT = 40
BATCH = 5
AGE_MS_MAX = 120_000
CONSOLE_TIMEOUT_S = 30.0
ACCOUNTS = {
    "accounts": [
        {
            "accessKey": "application",
            "secretKey": SECRET,
            "defaultTopicPerm": "PUB|SUB",
            "defaultGroupPerm": "SUB",
            "topicPerms": ["closed=DENY", "read-only=SUB"],
            "groupPerms": ["closed-group=DENY"],
        },
        {"accessKey": "powerless", "secretKey": SECRET},
        {"accessKey": "administrator", "secretKey": SECRET, "admin": True},
    ]
}
KEYS = {"enablePropertyFilter": "true", "aclEnable": "true"}
EXPRESSIONS: dict[str, Callable[[int, str], bool]] = {
    "price BETWEEN 3 AND 5 AND region = 'eu'": lambda price, region: price == 4 and region == "eu",
    "price > 7 OR region IN ('us')": lambda price, region: price > 7 or region == "us",
    "missing IS NULL AND NOT price = 0 AND price <= '2'": lambda price, _: False,
    "price = 1 AND nothing more": lambda price, _: False,
}
"""The third doesn't compile; the fourth compiles except for its last words."""
REFUSED_BY_OURS = "price = 1 AND nothing more"
"""RocketMQ ignores text after a valid expression, and its consumer silently gets no messages."""


NEW = {"accessKey": "new-account", "secretKey": "new-secret", "admin": "false"}
TOPIC = {
    "topic": "made",
    "defaultTopic": "TBW102",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}
PULL = {
    "consumerGroup": "g",
    "topic": "made",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "a = 1",
    "expressionType": "SQL92",
    "subVersion": "0",
}
SUBSCRIPTION = {
    "clientId": "c",
    "group": "g",
    "subscriptionData": {"topic": "made", "subString": "a != 1", "expressionType": "SQL92"},
}
CASES: list[tuple[str, int, dict[str, str]]] = [
    ("application", RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC),
    ("administrator", RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC),
    ("administrator", 9999, {}),
    ("powerless", RequestCode.PULL_MESSAGE, PULL),
    ("application", RequestCode.PULL_MESSAGE, {**PULL, "topic": "closed"}),
    ("application", RequestCode.PULL_MESSAGE, {**PULL, "consumerGroup": "closed-group"}),
    ("application", RequestCode.PULL_MESSAGE, {**PULL, "subscription": ""}),
    ("application", RequestCode.PULL_MESSAGE, PULL),
    ("application", RequestCode.CHECK_CLIENT_CONFIG, {}),
    ("administrator", RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {**NEW, "topicPerms": "T=PUB"}),
    ("administrator", RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {**NEW, "secretKey": "short"}),
    ("administrator", RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {**NEW, "topicPerms": "T=ALL"}),
    ("administrator", RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {**NEW, "topicPerms": ""}),
    ("administrator", RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {**NEW, "whiteRemoteAddress": "x"}),
    ("administrator", RequestCode.DELETE_ACL_CONFIG, {"accessKey": "new-account"}),
    ("administrator", RequestCode.DELETE_ACL_CONFIG, {"accessKey": "nobody-at-all"}),
    ("administrator", RequestCode.GET_BROKER_CLUSTER_ACL_INFO, {}),
    ("administrator", RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, {}),
    (
        "administrator",
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        {"globalWhiteAddrs": "10.0.0.1", "aclFileFullPath": "/nowhere/plain_acl.yml"},
    ),
    (
        "administrator",
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        {"globalWhiteAddrs": "10.0.0.1,10.0.1.*"},
    ),
]
"""In this order, because later ones check the effects of earlier ones."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Peer]]:
    """Our broker and the real one, with the same accounts."""
    require_java()
    directories = [tmp_path_factory.mktemp(name) for name in ("ours", "theirs")]
    ours = BrokerProcess(directories[0], **KEYS)
    theirs = Peer("4.9.7", directories[1], **KEYS)
    for directory in directories:
        write_accounts(directory)
    with theirs:
        ours.start()
        try:
            yield ours, theirs
        finally:
            ours.stop()


def write_accounts(directory: Path) -> None:
    (directory / "conf").mkdir(exist_ok=True)
    (directory / "conf" / "plain_acl.yml").write_text(yaml.safe_dump(ACCOUNTS))


async def test_unchanged_accounts_have_the_version_of_their_loading(
    brokers: tuple[BrokerProcess, Peer],
) -> None:
    """Runs first: later tests change the accounts."""
    for each in brokers:
        client = Client(f"127.0.0.1:{each.port}")
        client.remoting = RemotingClient(signer=Credentials("administrator", SECRET))
        answer = await client.ask(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        await client.shutdown()
        version = json.loads(answer.ext_fields["version"])
        assert version["counter"] == 0
        assert 0 <= SystemClock().now_ms() - version["timestamp"] < AGE_MS_MAX
        assert list(json.loads(answer.ext_fields["allAclFileVersion"]).values()) == [version]


def produce(
    java: JavaClients, namesrv: str, topic: str, access_key: str, secret: str = SECRET
) -> list[list[str]]:
    group = f"{topic}-producers"
    return java.run("SignedProducer", namesrv, topic, group, access_key, secret, COUNT)


def consume(
    java: JavaClients,
    namesrv: str,
    topic: str,
    group: str,
    expression: str,
    *,
    count: int,
    seconds: int = 150,
) -> list[str]:
    arguments = (namesrv, topic, group, "application", SECRET, expression, count, 1_500, seconds)
    return [" ".join(line) for line in java.run("SelectingConsumer", *arguments)]


@pytest.mark.parametrize(
    ("topic", "access_key", "secret"),
    [
        ("open", "application", SECRET),
        ("closed", "application", SECRET),
        ("open", "administrator", SECRET),
        ("open", "powerless", SECRET),
        ("open", "application", "wrong-secret"),
        ("open", "unknown-account", SECRET),
        ("open", "-", "-"),
    ],
)
def test_a_producer_gets_the_same_results_as_with_the_real_broker(
    java_4: JavaClients,
    brokers: tuple[BrokerProcess, Peer],
    topic: str,
    access_key: str,
    secret: str,
) -> None:
    ours, theirs = (
        dict(produce(java_4, each.namesrv, topic, access_key, secret)) for each in brokers
    )

    # RocketMQ doesn't check a batch's topic. Since 4.9.4 its clients also sign a mark of queries
    # that its brokers leave out of the signature, so it rejects every signed query; ours decides by
    # the client's version, as 5.x does.
    if ours["send"] != "OK" and access_key in ("application", "powerless"):
        assert ours.pop("batch") == ours["send"]
        theirs.pop("batch")
    if ours["send"] == "OK":
        assert int(ours.pop("query")) >= 1
        assert ours.pop("query-unique") == "k-1"
        del theirs["query"], theirs["query-unique"]
    assert ours == theirs


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_consumer_selects_the_same_messages_as_with_the_real_broker(
    java_4: JavaClients, brokers: tuple[BrokerProcess, Peer], expression: str
) -> None:
    number = list(EXPRESSIONS).index(expression)
    topic, group = f"selected-{number}", f"selecting-{number}"
    expected = keys_wanted(expression)

    ours, theirs = (
        selected(java_4, each.namesrv, topic, group, expression, len(expected)) for each in brokers
    )

    if expression == REFUSED_BY_OURS:
        assert (ours, theirs) == (["refused 23"], ["started", "received"])
        return
    assert ours == theirs
    assert ours == ["refused 23"] or ours == ["started", " ".join(["received", *expected])]


@pytest.mark.parametrize(
    ("access_key", "code", "fields"), CASES, ids=[f"{case[1]}-{i}" for i, case in enumerate(CASES)]
)
async def test_requests_end_with_the_real_brokers_code(
    brokers: tuple[BrokerProcess, Peer], access_key: str, code: int, fields: dict[str, Any]
) -> None:
    answers = []
    for each in brokers:
        client = Client(f"127.0.0.1:{each.port}")
        client.remoting = RemotingClient(signer=Credentials(access_key, SECRET))
        body = java_json.encode(SUBSCRIPTION) if code == RequestCode.CHECK_CLIENT_CONFIG else b""
        answers.append(await client.ask(code, body, **fields))
        await client.shutdown()
    ours, theirs = answers

    assert ours.code == theirs.code, f"theirs: {theirs.remark}\nours: {ours.remark}"
    if ours.code == 1:
        # RocketMQ adds a line number of its source to the reason.
        assert (theirs.remark or "").startswith((ours.remark or "") + ", org.apache.rocketmq.")


def test_the_console_signs_for_both_brokers(
    brokers: tuple[BrokerProcess, Peer], settings: Any, tmp_path: Path
) -> None:
    """The real broker treats the fields of the fresh signature like any other fields."""
    settings.TREBUCHET_BROKER_ACCESS_KEY = "administrator"
    settings.TREBUCHET_BROKER_SECRET_KEY = SECRET
    settings.TREBUCHET_CONFIRMED_BROKERS_FILE = tmp_path / "confirmed_brokers.json"
    for each in brokers:
        settings.TREBUCHET_NAMESRV = [each.namesrv]
        request = RemoteBrokers([each.namesrv], CONSOLE_TIMEOUT_S)
        gateway = gateway_to(request)
        try:
            [node] = gateway.cluster.registered().masters
            known_addresses().confirm(node.address)
            topic = TopicConfig("signed-freshly", 1, 1, 6)
            gateway.topics.save(topic, [node.broker_name])
            topics = gateway.topics.all()
            gateway.topics.delete("signed-freshly")
        finally:
            request.close()
        assert topics["signed-freshly"].configs == {node.broker_name: topic}


def test_each_client_version_signs_and_selects(
    java: JavaClients, brokers: tuple[BrokerProcess, Peer]
) -> None:
    topic = f"version-{java.version.replace('.', '_')}"
    expression = next(iter(EXPRESSIONS))
    expected = keys_wanted(expression)

    found = selected(java, brokers[0].namesrv, topic, f"{topic}-group", expression, len(expected))

    assert found == ["started", " ".join(["received", *expected])]


def test_a_group_without_permission_gets_nothing(
    java_4: JavaClients, brokers: tuple[BrokerProcess, Peer]
) -> None:
    topic, namesrv = "closed-to-a-group", brokers[0].namesrv
    produce(java_4, namesrv, topic, "application")

    lines = consume(java_4, namesrv, topic, "closed-group", "price >= 0", count=1, seconds=5)

    assert lines in (["refused 1"], ["started", "received"])


SENDERS = [
    ("open", "application", SECRET),
    ("closed", "application", SECRET),
    ("open", "powerless", SECRET),
    ("open", "application", "wrong-secret"),
    ("open", "unknown-account", SECRET),
]
"""A topic, an account, its secret key or a wrong one."""


def test_each_java_client_sends_as_its_account_allows(
    java: JavaClients, brokers: tuple[BrokerProcess, Peer]
) -> None:
    arguments = [part for sender in SENDERS for part in sender]
    for kind, broker in ((OURS, brokers[0]), (THEIRS, brokers[1])):
        lines = java.run("Accounts", broker.namesrv, *arguments)
        text = f"sent with five accounts: {', '.join(line[1] for line in lines)}"
        outcome_page.require(STEPS, "accounts", f"Java {java.version}", kind, text)


def test_the_go_client_sends_as_its_account_allows(
    program: Path, brokers: tuple[BrokerProcess, Peer]
) -> None:
    for kind, broker in ((OURS, brokers[0]), (THEIRS, brokers[1])):
        ends = []
        for sender in SENDERS:
            done = subprocess.run(
                [str(program), "signed", broker.namesrv, *sender],
                capture_output=True,
                text=True,
                timeout=180,
                check=True,
            )
            ends.append(done.stdout.strip().removeprefix("send "))
        text = f"sent with five accounts: {', '.join(ends)}"
        outcome_page.require(STEPS, "accounts", "Go", kind, text)


def keys_wanted(expression: str) -> list[str]:
    """Return the keys of the messages that the expression selects, in text order."""
    is_wanted = EXPRESSIONS[expression]
    numbers = range(COUNT + BATCH)
    return sorted(f"k-{i}" for i in numbers if is_wanted(i % 10, "us" if i % 2 else "eu"))


def selected(
    java: JavaClients, namesrv: str, topic: str, group: str, expression: str, count: int
) -> list[str]:
    """Return the output of a consumer that selects from an already filled topic."""
    produce(java, namesrv, topic, "application")
    return consume(java, namesrv, topic, group, expression, count=count)
