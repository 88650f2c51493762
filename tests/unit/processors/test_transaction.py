from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from broker_core.clients.producers import ProducerMember, Producers
from broker_core.formats import record
from broker_core.message.ids import host_bytes
from broker_core.processors.transaction import ProducerInquiry
from broker_core.transaction.check import CheckedHalf
from tests.support.builders import a_message_ext

if TYPE_CHECKING:
    from broker_core.clients.client import ClientConnection
    from broker_core.protocol.command import RemotingCommand

HOST = host_bytes("127.0.0.1", 10911)


class FakeConnection:
    """A producer's connection that records checks."""

    remote_address = "127.0.0.1:5000"

    def __init__(self, *, is_open: bool = True, is_writable: bool = True) -> None:
        self.is_open = is_open
        self.is_writable = is_writable and is_open
        self.requests: list[RemotingCommand] = []

    def oneway(self, command: RemotingCommand) -> None:
        self.requests.append(command)

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def producers() -> Producers:
    return Producers()


@pytest.fixture
def inquiry(producers: Producers) -> ProducerInquiry:
    return ProducerInquiry(HOST, producers, None)


def join(producers: Producers, connection: FakeConnection, group: str = "pg") -> FakeConnection:
    member = ProducerMember("client", "JAVA", 407, 0.0, 0)
    producers.register(cast("ClientConnection", connection), group, member)
    return connection


def a_half(**more: str) -> CheckedHalf:
    message = a_message_ext(
        "RMQ_SYS_TRANS_HALF_TOPIC",
        flag=7,
        queue_offset=3,
        commit_log_offset=300,
        sys_flag=1,
        born_timestamp=17,
        born_host="[2001:db8::1]:5000",
        store_timestamp=18,
        store_host="127.0.0.1:10911",
        body=b"body",
        properties={"PGROUP": "pg", "UNIQ_KEY": "U", "REAL_TOPIC": "T", "REAL_QID": "5", **more},
    )
    return CheckedHalf(message, 9, 900)


def test_the_check_has_the_message_in_the_producers_form(
    producers: Producers, inquiry: ProducerInquiry
) -> None:
    connection = join(producers, FakeConnection())

    assert inquiry.ask(a_half())

    (question,) = connection.requests
    assert question.ext_fields == {
        "tranStateTableOffset": "9",
        "commitLogOffset": "900",
        "offsetMsgId": "7F000001" + "00002A9F" + f"{900:016X}",
        "msgId": "U",
        "transactionId": "U",
    }
    message = record.decode(question.body)
    assert (message.topic, message.queue_id, message.body) == ("T", 5, b"body")
    assert (message.queue_offset, message.commit_log_offset) == (9, 900)
    assert (message.flag, message.sys_flag & 0xF, message.born_timestamp) == (7, 1, 17)
    assert message.born_host == "[2001:db8::1]:5000"
    assert message.properties["PGROUP"] == "pg"


def test_producers_take_turns(producers: Producers, inquiry: ProducerInquiry) -> None:
    connections = [join(producers, FakeConnection()) for _ in range(3)]

    for _ in range(6):
        assert inquiry.ask(a_half())

    assert [len(one.requests) for one in connections] == [2, 2, 2]


def test_a_client_that_does_not_read_is_only_chosen_as_a_last_resort(
    producers: Producers, inquiry: ProducerInquiry
) -> None:
    slow = join(producers, FakeConnection(is_writable=False))
    join(producers, FakeConnection(is_open=False))
    inquiry.ask(a_half())
    assert len(slow.requests) == 1

    quick = join(producers, FakeConnection())
    inquiry.ask(a_half())

    assert (len(slow.requests), len(quick.requests)) == (1, 1)


def test_without_a_live_producer_of_the_group_none_is_checked(
    producers: Producers, inquiry: ProducerInquiry
) -> None:
    other = join(producers, FakeConnection(), "other")
    join(producers, FakeConnection(is_open=False))

    assert not inquiry.ask(a_half())

    assert other.requests == []


def test_a_message_without_a_target_queries_no_broker(
    producers: Producers, inquiry: ProducerInquiry
) -> None:
    connection = join(producers, FakeConnection())

    assert not inquiry.ask(a_half(REAL_QID="x"))

    assert connection.requests == []
