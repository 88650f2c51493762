"""Binary headers, oneway sends, other versions' fields: handled by the compiled turn or not."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.formats.record import examine
from broker_core.processors.send import MSG_ID_OFFSET
from broker_core.protocol.frame import FrameDecoder
from broker_core.trace.filter import TraceWatch
from broker_core.trace.watch import Watcher
from tests.support import frame_corpus, pull_frames, send_frames
from tests.support.native_turn import TOPIC, a_send, a_twin, change, served, with_slave
from tests.support.raw_remoting import frame
from tests.support.send_frames import BINARY
from tests.support.twins import Twin, is_compiled, settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker_core.protocol.command import RemotingCommand

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)

UNIQ = "UNIQ_KEY\x01AC1100\x02WAIT\x01true\x02KEYS\x01größe 2\x02TAGS\x01TagA"
OPAQUE = -2_000_000_000


@pytest.fixture
async def twin() -> AsyncIterator[Twin]:
    async for each in a_twin():
        # It creates the queue, and room in the index.
        await each.feed(a_send(properties="KEYS\x01k"))
        each.transport.written.clear()
        yield each


def binary_send(
    opaque: int = 1, properties: str = "", body: bytes = b"hello", **more: Any
) -> bytes:
    fields = send_frames.fields_of(TOPIC, 0, properties)
    return send_frames.send(fields, body, opaque, client=BINARY, **more)


def binary_pull(queue_offset: int = 0, opaque: int = 1, *, flags: int = 2, **more: Any) -> bytes:
    fields = pull_frames.fields_of(TOPIC, 0, queue_offset, flags=flags, **more)
    return pull_frames.pull(fields, opaque, client=BINARY)


def answers(twin: Twin) -> list[RemotingCommand]:
    """Return the answers since the previous call."""
    decoder = FrameDecoder()
    decoder.feed(bytes(twin.transport.written))
    twin.transport.written.clear()
    return list(decoder.commands())


REQUESTS = {10, 11, 310, 320, 361}


@pytest.mark.parametrize("client", frame_corpus.clients())
async def test_the_turn_handles_the_headers_of_all_real_client_sends_and_pulls(
    twin: Twin, client: str
) -> None:
    turn = twin.wire.plain_requests
    assert turn is not None

    for one in frame_corpus.read(client):
        if one.answers is None and one.code in REQUESTS:
            await twin.feed(one.frame)

    assert (turn.fallbacks["header"], turn.fallbacks["code"]) == (0, 0)
    assert not twin.transport.closed


@pytest.mark.parametrize("code", [10, 310, 320])
async def test_a_send_with_white_space_in_its_json_stays_in_the_compiled_turn(
    twin: Twin, code: int
) -> None:
    fields = send_frames.fields_of(TOPIC, 0, UNIQ)
    body = send_frames.batch_item(b"x", b"") if code == 320 else b"x"
    if code == 10:
        fields = {send_frames.LONG_NAMES[letter]: value for letter, value in fields.items()}
    data = b"".join(
        send_frames.send(fields, body, opaque, code=code, client=send_frames.SPACED)
        for opaque in (OPAQUE, 7)
    )

    assert await served(twin, data) == 2

    assert [each.opaque for each in answers(twin)] == [OPAQUE, 7]
    assert twin.parts.store.max_offset_in_queue(TOPIC, 0) == 3


async def test_a_pull_with_white_space_in_its_json_stays_in_the_compiled_turn(twin: Twin) -> None:
    pulls = [
        pull_frames.pull(pull_frames.fields_of(TOPIC, 0, 0), opaque, client=send_frames.SPACED)
        for opaque in (1, OPAQUE, 7)
    ]
    # The first pull creates the group's offset, in Python.
    await twin.feed(pulls[0])

    assert await served(twin, b"".join(pulls[1:])) == 2

    assert [(each.code, each.opaque) for each in answers(twin)[1:]] == [(0, OPAQUE), (0, 7)]


@pytest.mark.parametrize("space", [b"\v", b"\f", b"\0", b"\xa0", b"\xc2\xa0", b"/**/"])
@pytest.mark.parametrize("token", [b"{", b":", b",", b"}"])
async def test_white_space_outside_jsons_definition_is_left_to_python(
    twin: Twin, space: bytes, token: bytes
) -> None:
    data = a_send()
    header = data[8 : 8 + int.from_bytes(data[5:8], "big")]

    assert await served(twin, frame(header.replace(token, token + space, 1), b"x")) == 0


async def test_sends_with_binary_headers_get_binary_answers(twin: Twin) -> None:
    stream = binary_send(OPAQUE, UNIQ) + a_send(5, UNIQ) + binary_send(6)

    assert await served(twin, stream) == 3

    found = answers(twin)
    assert [each.serialize_type for each in found] == [1, 0, 1]
    assert [each.opaque for each in found] == [OPAQUE, 5, 6]
    assert [each.ext_fields["queueOffset"] for each in found] == ["1", "2", "3"]
    assert {tuple(each.ext_fields) for each in found} == {
        ("MSG_REGION", "TRACE_ON", "msgId", "queueId", "queueOffset")
    }
    log = twin.parts.store.files.put_state
    stored = int(found[0].ext_fields["msgId"][-16:], 16)
    assert (
        int.from_bytes(log.buffer[stored : stored + 4], "big")
        == int(found[1].ext_fields["msgId"][-16:], 16) - stored
    )


@pytest.mark.parametrize("code", [10, 310, 320])
async def test_binary_batches_in_all_forms_are_handled_by_the_turn(twin: Twin, code: int) -> None:
    body = send_frames.batch_item(b"x", b"") * 32
    fields = send_frames.fields_of(TOPIC, 0, "UNIQ_KEY\x01AC00\x02WAIT\x01true", is_batch=True)
    if code == 10:
        fields = {send_frames.LONG_NAMES[letter]: value for letter, value in fields.items()}

    assert await served(twin, send_frames.send(fields, body, 1, code=code, client=BINARY)) == 1

    (answer,) = answers(twin)
    assert len(answer.ext_fields["msgId"].split(",")) == 32
    assert answer.ext_fields["queueOffset"] == "1"


async def test_the_answers_constant_fields_follow_a_live_change_in_both_forms(twin: Twin) -> None:
    change(twin, "traceOn", "false")

    assert await served(twin, binary_send() + a_send()) == 2

    assert [each.ext_fields["TRACE_ON"] for each in answers(twin)] == ["false", "false"]


async def test_the_last_value_of_a_repeated_binary_field_counts(twin: Twin) -> None:
    fields = send_frames.fields_of(TOPIC, 0, "")
    wrong = fields | {"b": "Wrong", "e": "3", "m": "true"}
    header = send_frames.binary_header([*wrong.items(), *fields.items(), ("b", "")], 1)

    assert await served(twin, frame(header, b"x", serializer=1)) == 1

    assert twin.parts.store.max_offset_in_queue(TOPIC, 0) == 2


async def test_empty_values_and_unknown_names_are_skipped(twin: Twin) -> None:
    entries = list(send_frames.fields_of(TOPIC, 0, "").items())
    entries += [("j", ""), ("ns", "größe"), ("bname", "broker-a"), ("A", "x"), ("lo", "")]
    header = send_frames.binary_header(entries, 1, language=255, remark="größe")

    assert await served(twin, frame(header, b"x", serializer=1)) == 1


@pytest.mark.parametrize(
    "change_entry",
    [("b", ""), ("", "x"), ("e", "00"), ("e", "2147483648"), ("i", "\0"), ("g", "x")],
)
async def test_an_odd_binary_field_is_left_to_python(
    twin: Twin, change_entry: tuple[str, str]
) -> None:
    name, value = change_entry
    fields = send_frames.fields_of(TOPIC, 0, "")
    header = send_frames.binary_header((fields | {name: value}).items(), 1)

    assert await served(twin, frame(header, b"x", serializer=1)) == 0
    assert not twin.transport.closed


@pytest.mark.parametrize("size", [-1, 0, 1, 7, 2**31 - 1])
@pytest.mark.parametrize("place", ["remark", "entries", "name", "value"])
async def test_no_length_in_a_binary_header_leads_the_turn_outside(
    twin: Twin, place: str, size: int
) -> None:
    header = bytearray(send_frames.binary_header([("b", TOPIC)], 1))
    at = {"remark": 13, "entries": 17, "name": 21, "value": 24}[place]
    if place == "name":
        struct.pack_into(">h", header, at, min(size, 2**15 - 1))
    else:
        struct.pack_into(">i", header, at, size)

    assert await served(twin, frame(bytes(header), serializer=1)) == 0


@pytest.mark.parametrize("cut", range(60))
async def test_a_binary_header_cut_anywhere_is_left_to_python(twin: Twin, cut: int) -> None:
    header = send_frames.binary_header(send_frames.fields_of(TOPIC, 0, "").items(), 1)

    assert await served(twin, frame(header[:cut], b"", serializer=1)) == 0

    assert twin.transport.closed


async def test_an_unknown_serializer_is_left_to_python(twin: Twin) -> None:
    data = bytearray(binary_send())
    data[4] = 2

    assert await served(twin, bytes(data)) == 0

    assert twin.transport.closed


@pytest.mark.parametrize("flags", [0, 2, 4, 6])
async def test_pulls_with_binary_headers_get_binary_answers(twin: Twin, flags: int) -> None:
    await twin.feed(binary_send(properties="TAGS\x01größe\x02") * 40)
    twin.transport.written.clear()

    assert await served(twin, binary_pull(3, OPAQUE, flags=flags, expression="größe || TagB")) == 1

    (answer,) = answers(twin)
    assert (answer.code, answer.remark, answer.opaque) == (0, "FOUND", OPAQUE)
    assert answer.serialize_type == 1
    assert answer.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "35",
        "minOffset": "0",
        "maxOffset": "41",
    }
    assert answer.body.count(b"hello") == 32


@pytest.mark.parametrize("is_watched", [False, True])
async def test_a_waiting_binary_pull_is_answered_in_binary_by_every_path(
    twin: Twin, is_watched: bool
) -> None:
    assert await served(twin, binary_pull(1, 7)) == 1
    assert answers(twin) == []
    if is_watched:
        twin.parts.tracer.watch("c", TraceWatch(topic=TOPIC), Watcher(lambda _: True))

    await twin.feed(a_send(8))

    found = {each.opaque: each for each in answers(twin)}
    assert (found[7].serialize_type, found[7].ext_fields["nextBeginOffset"]) == (1, "2")
    assert found[8].serialize_type == 0


async def test_a_binary_pull_without_a_result_reports_it(twin: Twin) -> None:
    assert (
        await served(twin, binary_pull(1, flags=0) + binary_pull(0, flags=4, expression="T")) == 2
    )

    assert [(each.code, each.remark) for each in answers(twin)] == [
        (19, "OFFSET_OVERFLOW_ONE"),
        (20, "NO_MATCHED_MESSAGE"),
    ]


async def test_unsuccessful_binary_answers_are_also_binary(twin: Twin) -> None:
    with_slave(twin)
    before = twin.parts.store.max_commit_log_offset
    assert await served(twin, binary_send(2) + a_send(3) + binary_send(4)) == 3

    twin.clock.advance_ms(3_100)
    await settled()

    found = answers(twin)
    assert [(each.code, each.serialize_type) for each in found] == [(12, 1), (12, 0), (12, 1)]
    assert int(found[0].ext_fields["msgId"][-16:], 16) == before


@pytest.mark.parametrize("count", [1, 3])
async def test_a_puts_offset_is_found_in_answers_of_both_forms(twin: Twin, count: int) -> None:
    fields = send_frames.fields_of(TOPIC, 0, "", is_batch=True)
    body = send_frames.batch_item(b"x", b"") * count
    log = twin.parts.store
    places = []
    for client in ("JAVA", BINARY, "JAVA", BINARY):
        places.append(log.max_commit_log_offset)
        await twin.feed(send_frames.send(fields, body, 0x22222222, client=client))
    data = bytes(twin.transport.written)

    assert [int(place, 16) for place in MSG_ID_OFFSET.findall(data)] == places


@pytest.mark.parametrize("client", ["JAVA", "GO", BINARY])
async def test_a_oneway_send_is_stored_and_not_answered(twin: Twin, client: str) -> None:
    fields = send_frames.fields_of(TOPIC, 0, UNIQ)
    oneway = send_frames.send(fields, b"x", 1, flag=send_frames.ONEWAY, client=client)

    assert await served(twin, oneway) == 1
    assert await served(twin, oneway * 2) == 1
    assert not twin.transport.written

    assert await served(twin, oneway + a_send(7) + oneway) == 1
    assert [each.opaque for each in answers(twin)] == [7]
    assert twin.parts.store.max_offset_in_queue(TOPIC, 0) == 7
    assert twin.wire.in_flight == 0


async def test_a_oneway_batch_is_stored_and_not_answered(twin: Twin) -> None:
    fields = send_frames.fields_of(TOPIC, 0, "", is_batch=True)
    body = send_frames.batch_item(b"x", b"") * 3

    assert await served(twin, send_frames.send(fields, body, 1, flag=send_frames.ONEWAY)) == 1

    assert not twin.transport.written
    assert twin.parts.store.max_offset_in_queue(TOPIC, 0) == 4


async def test_an_answer_or_an_unknown_flag_is_not_a_send(twin: Twin) -> None:
    assert await served(twin, a_flagged(1) + a_flagged(3) + a_flagged(4)) == 0


async def test_a_oneway_pull_is_left_to_python(twin: Twin) -> None:
    fields = pull_frames.fields_of(TOPIC, 0, 0)

    assert await served(twin, pull_frames.pull(fields, 1, flag=send_frames.ONEWAY)) == 0
    assert not twin.transport.written


def a_flagged(flag: int) -> bytes:
    return send_frames.send(send_frames.fields_of(TOPIC, 0, ""), b"", 1, flag=flag)


async def test_a_oneway_send_is_left_to_python_while_puts_wait(twin: Twin) -> None:
    with_slave(twin)

    assert await served(twin, binary_send(flag=send_frames.ONEWAY)) == 0

    assert twin.parts.store.files.put_state.put_times == 2


@pytest.mark.parametrize("code", [310, 320])
async def test_fields_that_newer_clients_add_to_sends_are_ignored(twin: Twin, code: int) -> None:
    fields = {"lo": "false", **send_frames.fields_of(TOPIC, 0, UNIQ), "ns": "größe", "Z": "z"}
    body = send_frames.batch_item(b"x", b"") if code == 320 else b"x"

    assert await served(twin, send_frames.send(fields, body, 1, code=code)) == 1


async def test_a_repeated_short_field_is_left_to_python(twin: Twin) -> None:
    data = a_send().replace(b'"a":"group"', b'"b":"Wrong"')

    assert await served(twin, data) == 0


async def test_guarded_batches_are_stored_by_the_turn_record_by_record() -> None:
    async for twin in a_twin(enabledAppendPropCRC="true"):
        await twin.feed(a_send(properties="UNIQ_KEY\x01A\x02"))
        own = ("", "TAGS\x01größe", "UNIQ_KEY\x01A\x02", "k\x01v\x02KEYS\x01a b\x02")
        body = b"".join(
            send_frames.batch_item(bytes(100 * size), text.encode())
            for size, text in enumerate(own)
        )
        for common in ("", "WAIT\x01true", "TAGS\x01TagA\x02"):
            fields = send_frames.fields_of(TOPIC, 0, common, is_batch=True)
            assert await served(twin, send_frames.send(fields, body, 1)) == 1

        state = twin.parts.store.files.put_state
        offset = count = 0
        with memoryview(state.buffer) as view:
            while offset < state.position:
                head = examine(
                    view, offset, state.position, offset, check_crc=True, is_guarded=True
                )
                offset += head.size
                count += 1
        assert count == 1 + 3 * len(own)


@pytest.mark.parametrize("own", ["__CRC32#\x010123456789\x02", ""])
async def test_a_batch_with_a_checksum_of_its_own_is_left_to_python(own: str) -> None:
    async for twin in a_twin(enabledAppendPropCRC="true"):
        await twin.feed(a_send())
        body = send_frames.batch_item(b"x", b"") + send_frames.batch_item(b"x", own.encode())
        common = "" if own else "__CRC32#\x010123456789"
        fields = send_frames.fields_of(TOPIC, 0, common, is_batch=True)

        assert await served(twin, send_frames.send(fields, body, 1)) == 0

        assert twin.parts.store.max_offset_in_queue(TOPIC, 0) == 3


async def test_skipped_binary_requests_are_counted_by_reason(twin: Twin) -> None:
    turn = twin.wire.plain_requests
    assert turn is not None
    before = turn.fallbacks
    frames = {
        "code": pull_frames.pull({"x": "y"}, 1, code=34, client=BINARY),
        "header": pull_frames.pull({"x": "y"}, 1, code=11, client=BINARY),
        "reader": binary_pull(group="nobody"),
        "property": binary_send(properties="DELAY\x011\x02"),
    }

    for reason, data in frames.items():
        assert await served(twin, data) == 0
        assert turn.fallbacks == {**before, reason: before[reason] + 1}, reason
        before = turn.fallbacks
