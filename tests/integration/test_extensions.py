"""Extensions of installed packages in a running broker, from its start to its end."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from broker_core.composition.handler_wrappers import wrap_handlers
from broker_core.config.properties import parse_properties
from broker_core.message import properties
from broker_core.protocol.codes import RequestCode
from broker_core.store.put import MessagePut
from tests.support.broker import running_broker
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.client import Client, json_body, messages
from tests.support.installed_packages import EXAMPLES, install, install_project

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from broker_core.broker import Broker
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.dispatch import Handler

PREPARED = 4
SHOWN_FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class BadgedClient(Client):
    """Sends its badge with each request."""

    async def ask(self, code: int, body: bytes = b"", /, **fields: Any) -> RemotingCommand:
        return await super().ask(code, body, **{"badge": "B1", **fields})


def notes_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def facts(notes: list[dict[str, Any]], event: str, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(note[name] for name in names) for note in notes if note["event"] == event]


async def send_half(client: Client) -> RemotingCommand:
    table = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "U1"}
    return await client.ask(
        RequestCode.SEND_MESSAGE_V2,
        b"undecided",
        a="pg",
        b="Tx",
        c="TBW102",
        d="4",
        e="0",
        f=str(PREPARED),
        g="1795252759675",
        h="0",
        i=properties.encode(table),
        m="false",
    )


async def test_a_broker_runs_with_an_extension_of_each_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    notes_file, listener_file = tmp_path / "notes", tmp_path / "listener"
    broker = BrokerProcess(
        tmp_path / "broker",
        aclEnable="true",
        transactionTimeOut=0,
        transactionCheckInterval=100,
        transactionCheckMax=1,
        sendMessageHooks="notes,keyed",
        consumeMessageHooks="notes",
        rpcHooks="notes",
        accessValidators="badge",
        transactionListener="commits",
        messageStorePlugIn="notes",
        **{
            "extension.notes.file": notes_file,
            "extension.keyed.topic": "Keyed",
            "extension.badge.badge": "B1",
            "extension.commits.file": listener_file,
        },
    )
    broker.start()
    stranger = Client(f"127.0.0.1:{broker.port}")
    client = BadgedClient(f"127.0.0.1:{broker.port}")
    try:
        refused = await stranger.send("Keyed", keys="k")
        without_key = await client.send("Keyed")
        sent = await client.send("Keyed", b"hello", keys="k")
        pulled = await client.pull("Keyed")
        await client.ask(15, consumerGroup="g", topic="Keyed", queueId=0, commitOffset=1)
        await send_half(client)
        committed = await client.pull("Tx", suspend_ms=20_000, timeout_s=30.0)
        info = json_body(await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
    finally:
        await client.shutdown()
        await stranger.shutdown()
        exit_code = broker.stop()

    assert (refused.code, refused.remark) == (16, "show your badge")
    assert (without_key.code, without_key.remark) == (13, "messages of Keyed need a key")
    assert [message.body for message in messages(pulled)] == [b"hello"]
    assert [message.body for message in messages(committed)] == [b"undecided"]
    assert exit_code == 0, broker.words()
    assert "keyed:trebuchet-examples 1.0" in info["extensions"]
    assert "sendMessageHooks.keyed:0" in info["extensionFailures"]
    notes = notes_of(notes_file)
    before = [("Keyed", None), ("Keyed", "k"), ("Tx", None)]
    assert facts(notes, "before", "topic", "keys") == before
    assert facts(notes, "after", "topic", "code", "queue_offset") == [
        ("Keyed", 0, int(sent.ext_fields["queueOffset"])),
        ("Tx", 0, 0),
    ]
    assert facts(notes, "pulled", "group", "count") == [("g", 1), ("g", 1)]
    assert facts(notes, "consumed", "group", "to")[-1] == ("g", 1)
    assert ("Keyed", "PUT_OK") in facts(notes, "put", "topic", "status")
    assert ("Tx", "PUT_OK") in facts(notes, "put", "topic", "status")
    # The anonymous request is rejected before any hook sees it.
    assert len(facts(notes, "request", "code")) == len(facts(notes, "response", "code")) == 7
    discards = facts(notes_of(listener_file), "discard", "uniq_key", "checks")
    assert discards == [("U1", 1)]
    assert facts(notes, "closed", "what").count(("SendNotes",)) == 1


def test_a_missing_extension_ends_the_start(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, rpcHooks="absent")

    broker.launch()

    assert broker.wait() == 2
    *configuration, sentence = broker.words().splitlines()
    assert all(" configuration: " in line for line in configuration)
    assert sentence.startswith("broker_core: rpcHooks=absent: expected names of installed ")


def test_a_java_class_ends_the_start(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, messageStorePlugIn="org.apache.rocketmq.tieredstore.X")

    broker.launch()

    assert broker.wait() == 2
    *configuration, sentence = broker.words().splitlines()
    assert all(" configuration: " in line for line in configuration)
    assert "Java classes cannot be loaded" in sentence


def test_a_store_in_use_leaves_no_extensions_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    notes_file = tmp_path / "notes"
    (tmp_path / "store").write_text("a file where the store should be")
    broker = BrokerProcess(tmp_path, rpcHooks="notes", **{"extension.notes.file": notes_file})

    broker.launch()

    assert broker.wait() == 1, broker.words()
    assert facts(notes_of(notes_file), "closed", "what") == [("RequestNotes",)]


@asynccontextmanager
async def extended_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **keys: Any
) -> AsyncIterator[tuple[Broker, Client]]:
    """Run a broker in this process with the example extensions."""
    monkeypatch.syspath_prepend(EXAMPLES)
    async with running_broker(tmp_path, **keys) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        yield broker, client
        await client.shutdown()


async def test_hooks_learn_about_a_parked_pull_when_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "notes"
    keys = {"consumeMessageHooks": "notes", "extension.notes.file": str(file)}
    async with extended_broker(tmp_path, monkeypatch, **keys) as (broker, client):
        await client.send("T", b"first")
        waiting = asyncio.create_task(client.pull("T", 1, suspend_ms=20_000))
        while not len(broker.storage.parked_pulls):  # noqa: ASYNC110  parked pulls have no event
            await asyncio.sleep(0)
        assert not file.read_text()

        await client.send("T", b"second")

        assert [message.body for message in messages(await waiting)] == [b"second"]
        assert facts(notes_of(file), "pulled", "count") == [(1,)]


GATEKEEPER = """
from broker_core.errors import AbortProcessError

class Gatekeeper:
    interface_version = 1

    def __init__(self, context):
        self._group = context.options["group"]

    def consume_message_before(self, context):
        if context.consumer_group == self._group:
            raise AbortProcessError(16, "not this group")
        if context.consumer_group == "broken":
            raise ValueError("broken")

    def consume_message_after(self, context):
        raise AbortProcessError(16, "too late")
"""


async def test_a_consume_hook_rejects_a_pull_answered_immediately_or_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"trebuchet.consume_message_hooks": {"gate": "gatekeeper:Gatekeeper"}}
    install(tmp_path / "site", "gatekeeper", "1.0", points, gatekeeper=GATEKEEPER)
    monkeypatch.syspath_prepend(tmp_path / "site")
    keys = {"consumeMessageHooks": "gate", "extension.gate.group": "kept-out"}
    async with extended_broker(tmp_path, monkeypatch, **keys) as (broker, client):
        await client.send("T", b"first")
        at_once = await client.pull("T", group="kept-out")
        waiting = asyncio.create_task(
            client.pull("T", 1, group="kept-out", suspend_ms=20_000, timeout_s=30.0)
        )
        while not len(broker.storage.parked_pulls):  # noqa: ASYNC110  parked pulls have no event
            await asyncio.sleep(0)
        await client.send("T", b"second")
        later = await waiting
        others = [await client.pull("T", group=group) for group in ("welcome", "broken")]
        committed = await client.ask(
            15, consumerGroup="welcome", topic="T", queueId=0, commitOffset=1
        )
        counts = dict(broker.foundation.extensions.failures.counts)
    sys.modules.pop("gatekeeper")

    assert [(one.code, one.remark) for one in (at_once, later)] == [(16, "not this group")] * 2
    assert [len(messages(one)) for one in others] == [2, 2]
    assert committed.code == 0
    assert counts == {"consumeMessageHooks.gate": 2}


async def test_the_vip_port_has_the_same_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"sendMessageHooks": "keyed", "extension.keyed.topic": "Keyed"}
    async with extended_broker(tmp_path, monkeypatch, **keys) as (broker, _):
        vip = Client(f"127.0.0.1:{broker.listen_port - 2}")

        assert (await vip.send("Keyed")).code == 13
        assert (await vip.send("Other")).code == 0

        await vip.shutdown()


async def test_a_validator_beside_plain_acl_keeps_accounts_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {
        "aclEnable": "true",
        "accessValidators": "badge,plain_acl",
        "extension.badge.badge": "B1",
        "aclFile": str(tmp_path / "plain_acl.yml"),
    }
    (tmp_path / "plain_acl.yml").write_text("accounts: []\n")
    async with extended_broker(tmp_path, monkeypatch, **keys) as (_, client):
        nobody = await client.send("T")
        badged = await client.ask(RequestCode.GET_MAX_OFFSET, topic="T", queueId=0, badge="B1")

    assert nobody.code == 16
    assert badged.code == 1
    assert "No accessKey is configured" in (badged.remark or "")


async def test_a_broker_that_explains_access_names_the_validators_it_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {
        "aclEnable": "true",
        "accessValidators": "plain_acl,badge",
        "extension.badge.badge": "B1",
        "aclFile": str(tmp_path / "plain_acl.yml"),
    }
    (tmp_path / "plain_acl.yml").write_text("globalWhiteRemoteAddresses: ['127.0.0.1']\n")
    async with extended_broker(tmp_path, monkeypatch, **keys) as (_, client):
        answer = await client.ask(
            RequestCode.EXPLAIN_ACCESS, badge="B1", address="127.0.0.1", action="PUB", topic="T"
        )

    assert answer.code == 0, answer.remark
    report = json.loads(answer.body)
    assert (report["allowed"], report["reason"], report["validators"]) == (
        True,
        "globalWhite",
        ["badge"],
    )


async def test_without_plain_acl_there_are_no_accounts_to_administer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"aclEnable": "true", "accessValidators": "badge", "extension.badge.badge": "B1"}
    async with extended_broker(tmp_path, monkeypatch, **keys) as (_, client):
        answer = await client.ask(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, badge="B1")

    assert answer.code == 1
    assert "accessValidators doesn't include plain_acl" in (answer.remark or "")


async def test_without_extensions_the_tables_are_the_plain_ones(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        put = broker.storage.store.put_message
        assert put.__func__ is MessagePut.put_message  # type: ignore[attr-defined]
        table: dict[int, Handler] = {}
        assert wrap_handlers(table, broker.foundation, gate=None) is table


async def test_the_documented_example_works_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = dict(SHOWN_FILE.findall((ROOT / "docs/extensions.md").read_text()))
    site = tmp_path / "site"
    install_project(site, files["pyproject.toml"], keyed_topics=files["keyed_topics.py"])
    monkeypatch.syspath_prepend(site)
    keys: dict[str, Any] = {**parse_properties(files["broker.conf"])}
    async with running_broker(tmp_path, **keys) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        refused = await client.send("orders")
        answers = [await client.send("orders", keys="k"), await client.send("others")]
        await client.shutdown()

    assert (refused.code, refused.remark) == (13, "messages in orders need a key")
    assert [answer.code for answer in answers] == [0, 0]
    hook = sys.modules.pop("keyed_topics")
    assert hook.MESSAGE_ILLEGAL == 13


async def test_the_documented_plug_in_is_notified_of_every_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = dict(SHOWN_FILE.findall((ROOT / "docs/extensions.md").read_text()))
    points = {"trebuchet.message_store_plug_ins": {"counts": "topic_counts:TopicCounts"}}
    site = tmp_path / "site"
    install(site, "topic-counts", "1.0", points, topic_counts=files["topic_counts.py"])
    monkeypatch.syspath_prepend(site)
    async with running_broker(tmp_path, messageStorePlugIn="counts") as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        for topic in ("orders", "orders", "payments"):
            assert (await client.send(topic)).code == 0
        await client.shutdown()
    sys.modules.pop("topic_counts")

    reports = [entry.getMessage() for entry in caplog.records if entry.name == "topic_counts"]
    assert reports == ["topic orders received 2 messages", "topic payments received 1 messages"]
