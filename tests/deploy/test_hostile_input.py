"""Input that no client sends is answered or cut off, and no messages are lost."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.raw_remoting import RawClient

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

TOPIC = "hostile"
KEPT = b"kept"
MESSAGE_BYTES_MAX = 65_536
UNKNOWN_CODE = 9_999
REQUEST_CODE_NOT_SUPPORTED = 3
MESSAGE_ILLEGAL = 13
ILLEGAL_TOPICS = ["", "with blank", "semi;colon", "../escape", "dollar$", "x" * 128, "中文"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), maxMessageSize=MESSAGE_BYTES_MAX)
    process.start()
    raw_remoting.create_topic(process.port, TOPIC, queues=1)
    with RawClient(process.port) as client:
        answer = client.ask(raw_remoting.SEND_MESSAGE, raw_remoting.send_fields(TOPIC), KEPT)
    assert answer.code == raw_remoting.SUCCESS
    yield process
    process.stop()


@pytest.fixture(autouse=True)
def nothing_is_lost(broker: BrokerProcess) -> Iterator[None]:
    """After each test the broker still works, and its queue has its one message."""
    yield
    assert broker.is_running
    stored = raw_remoting.read_queue(broker.port, TOPIC, 0)
    assert [record.body for record in stored] == [KEPT]
    assert "Traceback" not in broker.words()


def test_garbage_closes_the_connection(broker: BrokerProcess, rng: random.Random) -> None:
    for _ in range(20):
        with RawClient(broker.port) as client:
            # A negative length can't begin a frame, whatever follows.
            client.send_bytes(b"\xff" + rng.randbytes(rng.randrange(7, 4_000)))

            assert client.is_closed_by_peer()


def test_another_protocols_words_close_the_connection(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")

        assert client.is_closed_by_peer()


def test_an_oversized_frame_is_cut_at_its_length(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(struct.pack(">i", 0x7FFF_FFFF) + b"x" * 1_000)

        assert client.is_closed_by_peer()


def test_a_header_longer_than_its_frame_closes_the_connection(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(struct.pack(">ii", 20, 1_000) + b"x" * 16)

        assert client.is_closed_by_peer()


def test_a_header_that_is_not_json_closes_the_connection(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(raw_remoting.frame(b"{not json"))

        assert client.is_closed_by_peer()


def test_half_a_frame_waits_and_then_counts(broker: BrokerProcess) -> None:
    data = raw_remoting.request(
        raw_remoting.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}, opaque=77
    )
    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        client.send_bytes(data[:9])
        # Other clients are served in the meantime.
        assert other.ask(raw_remoting.GET_BROKER_RUNTIME_INFO).code == raw_remoting.SUCCESS
        client.send_bytes(data[9:])
        answer = client.read_answer()

    assert (answer.opaque, answer.fields["offset"]) == (77, "1")


def test_half_a_frame_and_an_end_leave_nothing_behind(broker: BrokerProcess) -> None:
    data = raw_remoting.request(raw_remoting.SEND_MESSAGE, raw_remoting.send_fields(TOPIC), b"half")
    for cut in range(1, len(data), 37):
        with RawClient(broker.port) as client:
            client.send_bytes(data[:cut])


def test_an_unknown_request_code_is_answered(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        answer = client.ask(UNKNOWN_CODE)
        # The connection continues.
        again = client.ask(raw_remoting.GET_BROKER_RUNTIME_INFO)

    assert answer.code == REQUEST_CODE_NOT_SUPPORTED
    assert str(UNKNOWN_CODE) in answer.remark
    assert again.code == raw_remoting.SUCCESS


@pytest.mark.parametrize("topic", ILLEGAL_TOPICS)
def test_creating_an_illegal_topic_name_is_rejected(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.port) as client:
        answer = client.ask(raw_remoting.UPDATE_AND_CREATE_TOPIC, raw_remoting.topic_fields(topic))

    assert answer.code != raw_remoting.SUCCESS
    assert answer.remark
    assert not (broker.store / "consumequeue" / "escape").exists()


@pytest.mark.parametrize("topic", ILLEGAL_TOPICS)
def test_sending_to_an_illegal_topic_name_is_rejected(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.port) as client:
        answer = client.ask(raw_remoting.SEND_MESSAGE, raw_remoting.send_fields(topic), b"x")

    assert answer.code != raw_remoting.SUCCESS
    assert answer.remark


def test_a_body_above_the_limit_is_rejected(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        answer = client.ask(
            raw_remoting.SEND_MESSAGE,
            raw_remoting.send_fields(TOPIC),
            b"x" * (MESSAGE_BYTES_MAX + 1),
        )
        again = client.ask(raw_remoting.GET_BROKER_RUNTIME_INFO)

    assert answer.code == MESSAGE_ILLEGAL
    assert answer.remark
    assert again.code == raw_remoting.SUCCESS


@pytest.mark.parametrize("field", ["topic", "queueId", "bornTimestamp"])
def test_a_header_without_a_required_field_is_rejected(broker: BrokerProcess, field: str) -> None:
    fields = raw_remoting.send_fields(TOPIC)
    del fields[field]
    with RawClient(broker.port) as client:
        answer = client.ask(raw_remoting.SEND_MESSAGE, fields, b"x")

    assert answer.code != raw_remoting.SUCCESS
    assert answer.remark


@pytest.mark.parametrize("value", ["", "one", "99999999999999999999", "1e3"])
def test_a_non_numeric_value_is_rejected(broker: BrokerProcess, value: str) -> None:
    fields = {**raw_remoting.send_fields(TOPIC), "queueId": value, "bornTimestamp": value}
    with RawClient(broker.port) as client:
        answer = client.ask(raw_remoting.SEND_MESSAGE, fields, b"x")

    assert answer.code != raw_remoting.SUCCESS
    assert answer.remark
