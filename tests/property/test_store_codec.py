"""Records, batches and properties read back as written; other bytes are rejected."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings, strategies as st

from broker_core.errors import CorruptRecordError
from broker_core.formats import batch, record
from broker_core.message import properties as message_properties
from broker_core.message.ids import HOST_V4_SIZE, HOST_V6_SIZE, host_text, parse_host
from broker_core.message.sys_flag import HOST_V6_MASK

EXAMPLES = 60
ints = st.integers(-(1 << 31), (1 << 31) - 1)
counts = st.integers(0, (1 << 62))
words = st.text(st.characters(codec="utf-8", exclude_characters="\0\1\2"), min_size=1, max_size=20)
property_maps = st.dictionaries(words, words, max_size=6)
names = st.text("abcXYZ%_-09", min_size=1, max_size=127)
hosts = st.one_of(
    st.binary(min_size=HOST_V4_SIZE, max_size=HOST_V4_SIZE),
    st.binary(min_size=HOST_V6_SIZE, max_size=HOST_V6_SIZE),
).filter(lambda host: host[-4] < 128)
messages = st.fixed_dictionaries(
    {
        "topic": names.map(str.encode),
        "queue_id": ints,
        "queue_offset": counts,
        "commit_log_offset": counts,
        "body": st.binary(max_size=400),
        "properties": property_maps.map(lambda one: message_properties.encode(one).encode()),
        "flag": ints,
        "sys_flag": st.integers(0, 0xFFF),
        "born_timestamp": counts,
        "born_host": hosts,
        "store_timestamp": counts,
        "store_host": hosts,
        "reconsume_times": ints,
        "prepared_transaction_offset": counts,
    }
)


def encoded(message: dict[str, object]) -> bytes:
    buffer = bytearray(4096)
    size = record.encode_into(buffer, 0, **message)  # type: ignore[arg-type]
    assert not any(buffer[size:])
    return bytes(buffer[:size])


@settings(max_examples=EXAMPLES)
@given(messages)
def test_a_record_returns_the_values_stored_in_it(message):
    decoded = record.decode(encoded(message))

    assert decoded.topic.encode() == message["topic"]
    assert decoded.body == message["body"]
    text = message["properties"].decode()
    assert decoded.properties == message_properties.decode(text)
    assert decoded.sys_flag & ~HOST_V6_MASK == message["sys_flag"] & ~HOST_V6_MASK
    for host in ("born_host", "store_host"):
        assert parse_host(getattr(decoded, host)) == message[host]
    for name in message.keys() - {"topic", "body", "properties", "sys_flag"}:
        if not name.endswith("host"):
            assert getattr(decoded, name) == message[name]


@settings(max_examples=EXAMPLES)
@given(messages, st.data())
def test_part_of_a_record_is_not_a_record(message, data):
    whole = encoded(message)
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]

    with pytest.raises(CorruptRecordError):
        record.decode(part)


@settings(max_examples=EXAMPLES)
@given(messages, st.data())
def test_a_flipped_bit_in_size_magic_offset_or_body_is_reported(message, data):
    whole = bytearray(encoded(message))
    head = record.examine(memoryview(whole), 0, len(whole), None, check_crc=True)
    position = data.draw(
        st.sampled_from([*range(12), *range(28, 36), *range(head.body_from, head.body_to)])
    )
    if not message["body"] and 8 <= position < 12:
        # The checksum of an empty body isn't compared.
        return
    whole[position] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(CorruptRecordError):
        record.examine(
            memoryview(whole), 0, len(whole), message["commit_log_offset"], check_crc=True
        )


@settings(max_examples=EXAMPLES * 3)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=200).map(
            lambda data: struct.pack(">i", len(data) + 8) + record.MESSAGE_MAGIC_BYTES + data
        ),
    )
)
def test_any_bytes_are_a_message_or_corrupt(data):
    try:
        message = record.decode(data)
    except CorruptRecordError:
        return
    assert message.store_size <= len(data)


@settings(max_examples=EXAMPLES)
@given(st.lists(st.tuples(ints, st.binary(max_size=50), property_maps), max_size=10))
def test_a_batch_has_the_messages_added_to_it(items):
    data = b""
    for flag, body, properties in items:
        text = message_properties.encode(properties).encode()
        head = struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, flag, len(body))
        data += head + body + struct.pack(">h", len(text)) + text

    decoded = [
        (flag, bytes(body), message_properties.decode(str(text, "utf-8")))
        for flag, body, text in batch.decode(data)
    ]

    assert decoded == items


@settings(max_examples=EXAMPLES)
@given(hosts)
def test_a_host_equals_its_text(host):
    assert parse_host(host_text(host)) == host
