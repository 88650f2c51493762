"""A reader accepts or rejects any body, and allocates no memory for missing bytes."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, strategies as st

from broker_core.errors import CorruptRecordError, FrameError
from broker_core.formats import batch, record
from broker_core.message import properties as message_properties
from broker_core.message.ids import parse_host, parse_offset_msg_id
from broker_core.message.subscription import build_subscription
from broker_core.processors.heartbeat import CheckClientRequest, HeartbeatData, LockBatchRequest
from broker_core.protocol import binary_header, java_json, proxy_header
from broker_core.protocol.bodies.registration import RegisterBrokerBody
from broker_core.protocol.frame import FrameDecoder
from tests.support import frame_corpus
from tests.support.frame_proxy import Head

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PLAIN = TEXT.filter(lambda text: text and not set(text) & {"\x01", "\x02"})
INT32 = st.integers(-(2**31), 2**31 - 1)
KEPT_BYTES_MAX = 64 << 10
ANNOUNCED = 16_000_000
BODIES = [Head(one.frame).body for one in frame_corpus.everything()]
READERS: list[tuple[Callable[[bytes], object], type[Exception]]] = [
    (lambda data: list(batch.decode(data)), CorruptRecordError),
    (lambda data: list(record.decode_all(data)), CorruptRecordError),
    (RegisterBrokerBody.decode, ValueError),
    (lambda data: RegisterBrokerBody.decode(data, is_compressed=True), ValueError),
    (lambda data: java_json.decode_as(data, HeartbeatData), ValueError),
    (lambda data: java_json.decode_as(data, CheckClientRequest), ValueError),
    (lambda data: java_json.decode_as(data, LockBatchRequest), ValueError),
    (java_json.decode, ValueError),
    (proxy_header.parse, FrameError),
    (binary_header.decode, FrameError),
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A client's body with bytes changed, removed or cut off."""
    body = bytearray(draw(st.sampled_from([one for one in BODIES if one])))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body) - 1)) if body else 0
        match draw(st.integers(0, 3)):
            case 0:
                body[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                del body[at : at + draw(st.integers(1, 16))]
            case 2:
                del body[at:]
            case _:
                body[at:at] = draw(st.binary(max_size=8))
    return bytes(body)


@given(st.binary(max_size=300) | damaged())
def test_the_readers_only_reject_invalid_bytes(data: bytes) -> None:
    for reader, refusal in READERS:
        with contextlib.suppress(refusal):
            reader(data)


@given(st.lists(st.tuples(INT32, st.binary(max_size=50), st.binary(max_size=50)), max_size=8))
def test_a_written_batch_is_read_back_unchanged(items: list[tuple[int, bytes, bytes]]) -> None:
    data = b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(text))
        + text
        for flag, body, text in items
    )

    assert list(batch.decode(data)) == items


@given(st.dictionaries(PLAIN, PLAIN, max_size=8))
def test_written_properties_are_read_back_unchanged(properties: dict[str, str]) -> None:
    text = message_properties.encode(properties)

    assert message_properties.decode(text) == properties
    # Older clients end with a separator.
    assert message_properties.decode(text + "\x02") == properties


@given(st.text(st.sampled_from("ab\x00\x01\x02 é"), max_size=40))
def test_any_text_has_properties_without_empty_ones(text: str) -> None:
    for name, value in message_properties.decode(text).items():
        assert name
        assert value


@given(TEXT, TEXT | st.text(st.sampled_from("AB| *\t"), max_size=20), st.none() | TEXT)
def test_any_expression_is_a_subscription_or_rejected(
    topic: str, expression: str, kind: str | None
) -> None:
    with contextlib.suppress(ValueError):
        found = build_subscription(topic, expression, 1, kind)
        assert len(found.tags_set) == len(found.code_set) == len(set(found.tags_set))
        assert msgspec.json.encode(found)


@given(TEXT)
def test_any_text_is_an_id_or_is_rejected(text: str) -> None:
    parse_offset_msg_id(text)
    with contextlib.suppress(ValueError):
        parse_host(text)


def bomb() -> bytes:
    """A registration of about a kilobyte that inflates to sixteen megabytes and more."""
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(20)) + packer.flush()


NO_VERSION = zlib.compress(struct.pack(">i", ANNOUNCED))
NO_TOPICS = zlib.compress(struct.pack(">i", 2) + b"{}" + struct.pack(">i", ANNOUNCED))
ANNOUNCEMENTS: dict[str, Callable[[], object]] = {
    "frame": lambda: FrameDecoder().feed(struct.pack(">II", ANNOUNCED, 100)),
    "frame, its header": lambda: frame_of(struct.pack(">II", ANNOUNCED, 60_000)),
    "binary header, remark": lambda: binary_header.decode(
        struct.pack(">hBhiii", 10, 0, 1, 1, 0, ANNOUNCED)
    ),
    "binary header, fields": lambda: binary_header.decode(
        struct.pack(">hBhiiii", 10, 0, 1, 1, 0, 0, ANNOUNCED)
    ),
    "batch": lambda: list(batch.decode(struct.pack(">iiiii", ANNOUNCED, 0, 0, 0, ANNOUNCED))),
    "registration": lambda: RegisterBrokerBody.decode(NO_VERSION, is_compressed=True),
    "registration, its topics": lambda: RegisterBrokerBody.decode(NO_TOPICS, is_compressed=True),
    "PROXY header": lambda: proxy_header.parse(
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11" + struct.pack(">H", 2_000)
    ),
}


def frame_of(data: bytes) -> None:
    decoder = FrameDecoder()
    decoder.feed(data)
    list(decoder.commands())
    decoder.settle()


@pytest.mark.parametrize("name", ANNOUNCEMENTS)
def test_no_memory_is_allocated_for_an_announced_length(name: str) -> None:
    tracemalloc.start()
    try:
        with contextlib.suppress(FrameError, CorruptRecordError, ValueError):
            ANNOUNCEMENTS[name]()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < KEPT_BYTES_MAX


def test_a_registration_does_not_inflate_endlessly() -> None:
    body = bomb()

    with pytest.raises(ValueError, match=r"more than|inflate"):
        RegisterBrokerBody.decode(body, is_compressed=True)
