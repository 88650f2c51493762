"""A stream cut anywhere gives the same frames; any bytes give frames or a FrameError."""

from __future__ import annotations

import contextlib

import msgspec
from hypothesis import given, settings, strategies as st

from broker_core.errors import FrameError
from broker_core.protocol import binary_header, command as commands, json_header
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.frame import FrameDecoder

INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# Java reads an empty name or value of a binary header back as null.
FIELDS = st.dictionaries(TEXT.filter(bool), TEXT.filter(bool), max_size=8)


@st.composite
def command(draw: st.DrawFn) -> RemotingCommand:
    return RemotingCommand(
        draw(INT16),
        draw(INT32) | 1,  # POP's codes are restored in requests only
        draw(INT32),
        draw(INT16),
        draw(st.sampled_from(["JAVA", "GO", "PYTHON"])),
        draw(st.none() | TEXT.filter(bool)),
        draw(FIELDS),
        draw(st.binary(max_size=300)),
        None,
        draw(st.sampled_from([0, 1])),
    )


def drained(decoder: FrameDecoder, piece: bytes) -> list[RemotingCommand]:
    decoder.feed(piece)
    found = list(decoder.commands())
    decoder.settle()
    return found


LONG_TEXT = st.tuples(TEXT.filter(bool), st.integers(1, 2**17)).map(lambda each: each[0] * each[1])


@settings(max_examples=25)
@given(st.lists(LONG_TEXT, min_size=1, max_size=4), st.sampled_from([0, 1]), st.data())
def test_a_long_header_arrives_unchanged(
    texts: list[str], serialize_type: int, data: st.DataObject
) -> None:
    fields = {f"k{n}": text for n, text in enumerate(texts)}
    sent = RemotingCommand(10, ext_fields=fields, serialize_type=serialize_type).encode()
    cut = data.draw(st.integers(0, len(sent)))
    decoder = FrameDecoder()

    received = [one for piece in (sent[:cut], sent[cut:]) for one in drained(decoder, piece)]

    assert [one.ext_fields for one in received] == [fields]
    assert decoder.kept_bytes == 0


@given(st.lists(command(), max_size=6), st.data())
def test_a_stream_split_anywhere_gives_the_same_frames(
    sent: list[RemotingCommand], data: st.DataObject
) -> None:
    stream = b"".join(one.encode() for one in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder = FrameDecoder()

    received = [
        one
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for one in drained(decoder, stream[start:end])
    ]

    assert received == sent
    assert decoder.kept_bytes == 0


@given(st.lists(command(), min_size=1, max_size=6), st.data())
def test_a_decoder_interrupted_anywhere_resumes_there(
    sent: list[RemotingCommand], data: st.DataObject
) -> None:
    decoder = FrameDecoder()
    decoder.feed(b"".join(one.encode() for one in sent))
    count = data.draw(st.integers(0, len(sent)))

    received = [next(decoder.commands(), None) for _ in range(count)]
    decoder.settle()
    decoder.resume()
    received += decoder.commands()

    assert received == sent


@given(st.lists(st.binary(max_size=64), max_size=8))
def test_the_decoder_only_rejects_invalid_bytes(pieces: list[bytes]) -> None:
    decoder = FrameDecoder()

    with contextlib.suppress(FrameError):
        for piece in pieces:
            drained(decoder, piece)
    assert decoder.kept_bytes <= sum(map(len, pieces))


@given(command(), st.data())
def test_a_frame_with_a_changed_byte_is_decoded_or_rejected(
    sent: RemotingCommand, data: st.DataObject
) -> None:
    frame = bytearray(sent.encode())
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))

    with contextlib.suppress(FrameError):
        drained(FrameDecoder(), bytes(frame))


@given(st.binary(max_size=200), st.integers(0, 255))
def test_the_decoders_only_reject_invalid_headers(data: bytes, type_: int) -> None:
    for decode in (binary_header.decode, json_header.decode_leniently):
        with contextlib.suppress(FrameError):
            decode(data)
    with contextlib.suppress(FrameError):
        commands.decode(type_, data, b"")


JSON = st.recursive(
    st.none() | st.booleans() | INT32 | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["code", "flag", "extFields", "remark", "language"]), JSON))
def test_the_header_decoder_only_rejects_invalid_json(fields: object) -> None:
    data = msgspec.json.encode(fields)

    with contextlib.suppress(FrameError):
        read = commands.decode(0, data, b"")
        assert all(isinstance(value, str) for value in read.ext_fields.values())
        commands.decode(0, json_header.encode(read), b"")
