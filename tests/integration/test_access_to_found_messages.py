"""Requests that lead to an unnamed message: the code for each permission, on others' messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from broker_core.access.rules import RULES, TRACE
from broker_core.formats.record import decode
from broker_core.message import properties
from broker_core.message.ids import parse_offset_msg_id
from broker_core.message.sys_flag import (
    TRANSACTION_COMMIT_TYPE as COMMIT,
    TRANSACTION_PREPARED_TYPE as PREPARED,
    TRANSACTION_ROLLBACK_TYPE as ROLLBACK,
)
from broker_core.processors.transaction import ProducerInquiry
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.signature import Credentials
from broker_core.remoting.client import RemotingClient
from broker_core.transaction.check import CheckedHalf
from tests.support.broker import running_broker
from tests.support.client import Client, messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from broker_core.broker import Broker
    from broker_core.protocol.command import RemotingCommand

SECRET = "12345678"
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
REFUSAL = EXCEPTION + "No default permission for topic:T"
RIGHTS = {"nothing": "DENY", "pub-alone": "PUB", "sub-alone": "SUB", "pub-and-sub": "PUB|SUB"}
"""access key -> its permission on topic T; each has its own group and topic."""
ACCOUNTS: list[dict[str, Any]] = [
    {"accessKey": "administrator", "admin": True},
    *(
        {
            "accessKey": key,
            "topicPerms": [f"T={right}", "mine=PUB|SUB", "topic-BB=PUB|SUB"],
            "groupPerms": ["g=SUB"],
        }
        for key, right in RIGHTS.items()
    ),
    {"accessKey": "of-defaults", "defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB"},
]


class Found(NamedTuple):
    """The administrator's message in topic T, with all its locations."""

    msg_id: str
    commit_log_offset: int
    half: RemotingCommand


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    path = tmp_path / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    accounts = [{**each, "secretKey": SECRET} for each in ACCOUNTS]
    path.write_text(yaml.safe_dump({"accounts": accounts}))
    async with running_broker(tmp_path, aclEnable="true") as running:
        yield running


@pytest.fixture
async def client_of(broker: Broker) -> AsyncIterator[Callable[[str], Client]]:
    made: list[Client] = []

    def make(access_key: str) -> Client:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        client.remoting = RemotingClient(signer=Credentials(access_key, SECRET))
        made.append(client)
        return client

    yield make
    for client in made:
        await client.shutdown()


@pytest.fixture
async def found(client_of: Callable[[str], Client]) -> Found:
    admin = client_of("administrator")
    sent = await admin.send("T", b"secret")
    half = await send_half(admin)
    await admin.heartbeat(consumer_groups={"g": {"T": "*"}})
    place = parse_offset_msg_id(sent.ext_fields["msgId"])
    assert place is not None
    return Found(sent.ext_fields["msgId"], place.commit_log_offset, half)


async def send_half(client: Client) -> RemotingCommand:
    table = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "U1"}
    return await client.ask(
        RequestCode.SEND_MESSAGE_V2,
        b"half",
        a="pg",
        b="T",
        c="TBW102",
        d="4",
        e="0",
        f=str(PREPARED),
        g="17",
        h="0",
        i=properties.encode(table),
        j="0",
        k="false",
        m="false",
    )


async def view(client: Client, found: Found) -> RemotingCommand:
    return await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=found.commit_log_offset)


async def send_back(client: Client, found: Found) -> RemotingCommand:
    return await client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        offset=found.commit_log_offset,
        group="g",
        delayLevel=0,
        originTopic="mine",
    )


def half_offset(found: Found) -> int:
    place = parse_offset_msg_id(found.half.ext_fields["msgId"])
    assert place is not None
    return place.commit_log_offset


def end(outcome: int) -> Callable[[Client, Found], Awaitable[RemotingCommand]]:
    async def ask(client: Client, found: Found) -> RemotingCommand:
        return await client.ask(
            RequestCode.END_TRANSACTION,
            producerGroup="pg",
            tranStateTableOffset=found.half.ext_fields["queueOffset"],
            commitLogOffset=half_offset(found),
            commitOrRollback=outcome,
            fromTransactionCheck="false",
            msgId="U1",
        )

    return ask


async def reply(client: Client, _: Found, topic: str = "T") -> RemotingCommand:
    return await client.ask(
        RequestCode.SEND_REPLY_MESSAGE_V2,
        b"reply",
        a="rg",
        b=topic,
        c="TBW102",
        d="4",
        e="0",
        f="0",
        g="17",
        h="0",
        i="",
        j="0",
        k="false",
        m="false",
    )


async def long_reply(client: Client, _: Found) -> RemotingCommand:
    return await client.ask(
        RequestCode.SEND_REPLY_MESSAGE,
        b"reply",
        producerGroup="rg",
        topic="T",
        defaultTopic="TBW102",
        defaultTopicQueueNums="4",
        queueId="0",
        sysFlag="0",
        bornTimestamp="17",
        flag="0",
        properties="",
    )


async def consume_directly(client: Client, found: Found) -> RemotingCommand:
    return await client.ask(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        consumerGroup="g",
        clientId="nobody",
        msgId=found.msg_id,
    )


async def resume(client: Client, found: Found) -> RemotingCommand:
    return await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=found.msg_id)


class Case(NamedTuple):
    code: RequestCode
    ask: Callable[[Client, Found], Awaitable[RemotingCommand]]
    right: str
    """The required permission: PUB or SUB on T; only the administrator has "administer"."""


CASES = {
    "view": Case(RequestCode.VIEW_MESSAGE_BY_ID, view, "SUB"),
    "send back": Case(RequestCode.CONSUMER_SEND_MSG_BACK, send_back, "SUB"),
    "commit": Case(RequestCode.END_TRANSACTION, end(COMMIT), "PUB"),
    "roll back": Case(RequestCode.END_TRANSACTION, end(ROLLBACK), "PUB"),
    "reply": Case(RequestCode.SEND_REPLY_MESSAGE_V2, reply, "PUB"),
    "long reply": Case(RequestCode.SEND_REPLY_MESSAGE, long_reply, "PUB"),
    "consume directly": Case(RequestCode.CONSUME_MESSAGE_DIRECTLY, consume_directly, "administer"),
    "resume": Case(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume, "administer"),
}


def test_every_code_that_leads_to_a_message_has_a_case() -> None:
    # Watch events are checked one by one in test_trace_viewers.
    codes = {code for code, rule in RULES.items() if rule.found and rule is not TRACE}

    assert {case.code for case in CASES.values()} == codes


@pytest.mark.parametrize("access_key", [*RIGHTS, "administrator"])
@pytest.mark.parametrize("name", CASES)
async def test_another_users_message_needs_only_the_permission_on_its_topic(
    broker: Broker, client_of: Callable[[str], Client], found: Found, name: str, access_key: str
) -> None:
    case = CASES[name]
    store = broker.storage.store
    before = store.max_commit_log_offset

    answer = await case.ask(client_of(access_key), found)

    remark = answer.remark or ""
    if access_key == "administrator" or case.right in RIGHTS[access_key].split("|"):
        assert not remark.startswith(EXCEPTION)
        if name in ("view", "send back", "commit", "roll back"):
            assert answer.code == ResponseCode.SUCCESS
        return
    assert answer.code == ResponseCode.SYSTEM_ERROR
    if case.right == "administer":
        assert remark.startswith(EXCEPTION + "Need admin permission for ")
    else:
        assert remark == REFUSAL
    assert answer.body == b""
    assert store.max_commit_log_offset == before


@pytest.mark.parametrize(
    ("access_key", "is_asked"), [("nothing", False), ("sub-alone", False), ("pub-alone", True)]
)
async def test_a_half_message_is_not_shown_to_producers_without_send_permission(
    broker: Broker,
    client_of: Callable[[str], Client],
    found: Found,
    access_key: str,
    is_asked: bool,
) -> None:
    requests: list[RemotingCommand] = []
    client = client_of(access_key)
    client.remoting = RemotingClient(
        handlers={RequestCode.CHECK_TRANSACTION_STATE: lambda request, _: requests.append(request)},
        signer=Credentials(access_key, SECRET),
    )
    assert (await client.heartbeat("any", producer_groups=("pg",))).code == ResponseCode.SUCCESS

    producers, gate = broker.clients.producers, broker.access.gate
    inquiry = ProducerInquiry(broker.foundation.store_host, producers, gate)
    message = decode(broker.storage.store.look_message(half_offset(found)) or b"")
    was_asked = inquiry.ask(CheckedHalf(message, message.queue_offset, message.commit_log_offset))
    # Everything the broker sent before this answer has arrived.
    await client.heartbeat("any")

    assert was_asked is is_asked
    assert [b"half" in request.body for request in requests] == [True] * is_asked


async def test_a_deferred_message_belongs_to_its_target_topic(
    client_of: Callable[[str], Client],
) -> None:
    sent = await client_of("administrator").send("T", b"later", DELAY="18")
    place = parse_offset_msg_id(sent.ext_fields["msgId"])
    assert place is not None
    fields = {"offset": place.commit_log_offset}

    stranger = await client_of("nothing").ask(RequestCode.VIEW_MESSAGE_BY_ID, **fields)
    reader = await client_of("sub-alone").ask(RequestCode.VIEW_MESSAGE_BY_ID, **fields)

    assert stranger.remark == REFUSAL
    assert [message.body for message in messages(reader)] == [b"later"]


async def test_any_account_replies_to_the_reply_topic_of_the_cluster(
    client_of: Callable[[str], Client], found: Found
) -> None:
    own = await reply(client_of("nothing"), found, "DefaultCluster_REPLY_TOPIC")
    others = await reply(client_of("nothing"), found, "Other_REPLY_TOPIC")

    assert own.remark == "reply message properties[REPLY_TO_CLIENT] is null"
    assert (others.remark or "").startswith(EXCEPTION)


async def test_a_query_finds_no_message_of_another_topic_with_the_same_hash(
    client_of: Callable[[str], Client],
) -> None:
    admin = client_of("administrator")
    await admin.send("topic-Aa", b"secret", keys="k")
    query: dict[str, Any] = {"key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}

    mine = await client_of("nothing").ask(RequestCode.QUERY_MESSAGE, topic="topic-BB", **query)
    theirs = await admin.ask(RequestCode.QUERY_MESSAGE, topic="topic-Aa", **query)

    assert mine.code == ResponseCode.QUERY_NOT_FOUND
    assert mine.body == b""
    assert [message.body for message in messages(theirs)] == [b"secret"]


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    ],
)
async def test_a_default_permission_does_not_open_the_topics_of_the_broker(
    client_of: Callable[[str], Client], topic: str
) -> None:
    client = client_of("of-defaults")
    query: dict[str, Any] = {"key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}

    answers = [
        await client.pull(topic),
        await client.ask(RequestCode.QUERY_MESSAGE, topic=topic, **query),
        await client.heartbeat(consumer_groups={"mine": {topic: "*"}}),
        await client.send(topic),
    ]

    expected = f"{EXCEPTION}No default permission for topic:{topic}"
    assert [answer.remark for answer in answers] == [expected] * len(answers)
    assert (await client.pull("T")).code != ResponseCode.SYSTEM_ERROR
