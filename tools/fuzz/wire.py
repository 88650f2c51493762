"""Targets for the wire: frames, headers, proxy headers, replication."""

from __future__ import annotations

import contextlib
import ipaddress
import struct

from broker_core.errors import CorruptRecordError, FrameError, ReplicationError, RequestRefusedError
from broker_core.formats import batch, ha_frames
from broker_core.message.ids import offset_msg_id, parse_host, parse_offset_msg_id
from broker_core.protocol import binary_header, command, json_header, proxy_header
from broker_core.protocol.codes import SERIALIZE_JSON, SERIALIZE_ROCKETMQ
from broker_core.protocol.frame import FrameDecoder, FrameLimits
from broker_core.protocol.fresh_signature import fresh_content
from broker_core.protocol.headers import fields
from broker_core.protocol.headers.send_message import SendHeader
from broker_core.protocol.signature import signed_content
from tools.fuzz.target import Target

FRAME_BYTES_MAX = 1 << 16
PIECES_MAX = 100
TRANSFER_BYTES_MAX = 1 << 20
BATCH_ITEM = struct.Struct(">iiiii")


def frame(data: bytes) -> None:
    """A stream has the same frames in any pieces, and they can be written again."""
    cut, stream = data[:1], data[1:]
    whole, is_whole = _frames([stream])
    step = _step(cut, stream)
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    in_pieces, is_piecewise = _frames(pieces)
    assert in_pieces == whole
    assert is_piecewise == is_whole
    again, _ = _frames([one.encode() for one in whole])
    assert [_shown(one) for one in again] == [_shown(one) for one in whole]


def _step(cut: bytes, stream: bytes) -> int:
    """Return a piece size that gives a limited number of pieces."""
    return max(1 + (cut[0] if cut else 0), len(stream) // PIECES_MAX)


def _frames(pieces: list[bytes]) -> tuple[list[command.RemotingCommand], bool]:
    """Return the commands with texts, and whether the whole stream was readable."""
    decoder = FrameDecoder(FrameLimits(frame_bytes_max=FRAME_BYTES_MAX))
    found: list[command.RemotingCommand] = []
    for piece in pieces:
        decoder.feed(piece)
        try:
            # Commands before the invalid part of the stream count, too.
            found.extend(one.with_texts() for one in decoder.commands())
        except FrameError:
            return found, False
        decoder.settle()
        assert decoder.kept_bytes <= FRAME_BYTES_MAX
    return found, True


def _shown(one: command.RemotingCommand) -> tuple[object, ...]:
    """Return the fields that both header formats can express."""
    code, version = one.code, one.version
    if one.serialize_type == SERIALIZE_ROCKETMQ:
        code, version = code & 0xFFFF, version & 0xFFFF
    # The binary format has no empty texts, and encodes languages as numbers.
    remark = one.remark or None
    return code, one.flag, one.opaque, version, remark, one.ext_fields, one.body


def json_headers(data: bytes) -> None:
    """A readable header is written so that it reads back equal; both readers agree."""
    try:
        found = command.decode(SERIALIZE_JSON, data, b"")
    except FrameError:
        found = None
    with contextlib.suppress(FrameError):
        sent = command.decode_send(memoryview(data), b"").with_texts()
        assert found is not None
        assert (sent.code, sent.opaque, sent.flag) == (found.code, found.opaque, found.flag)
    with contextlib.suppress(FrameError):
        assert command.decode_long(SERIALIZE_JSON, memoryview(data), b"") == found
    if found is None:
        return
    assert command.decode(SERIALIZE_JSON, json_header.encode(found), b"") == found
    with contextlib.suppress(RequestRefusedError):
        SendHeader.of(found.ext_fields)
    assert isinstance(signed_content(found), bytes)
    assert isinstance(fresh_content(found), bytes)


def binary_headers(data: bytes) -> None:
    """A readable header is written so that it reads back equal."""
    with contextlib.suppress(FrameError):
        found = binary_header.decode(data)
        assert binary_header.decode(binary_header.encode(found)) == found


def header_fields(data: bytes) -> None:
    """A field is a number in its range, or the request is rejected; IDs read back as written."""
    text = data.decode("utf-8", "replace")
    table = {"field": text}
    with contextlib.suppress(RequestRefusedError):
        assert -(2**31) <= fields.int32(table, "field") < 2**31
    with contextlib.suppress(RequestRefusedError):
        assert -(2**63) <= fields.int64(table, "field") < 2**63
    with contextlib.suppress(RequestRefusedError):
        assert 0 <= fields.int32(table, "field", low=0, high=9) <= 9
    assert isinstance(fields.boolean(table, "field"), bool)
    found = parse_offset_msg_id(text)
    if found is not None:
        assert offset_msg_id(parse_host(found.host), found.commit_log_offset) == text.upper()


def proxy(data: bytes) -> None:
    """A header may have an address, and is complete exactly with its last byte."""
    try:
        found = proxy_header.parse(data)
    except FrameError:
        return
    if found is None:
        return
    assert 0 < found.size <= len(data)
    assert proxy_header.parse(data[: found.size]) == found
    assert proxy_header.parse(data[: found.size - 1]) is None
    if found.source is not None:
        host, port = found.source
        assert str(ipaddress.ip_address(host)) == host
        assert 0 <= port < 1 << 16


def replicas(data: bytes) -> None:
    """Reports are the same in any pieces; a header is written as it was read."""
    step = _step(data[:1], data)
    decoder = ha_frames.ReportDecoder()
    found = [
        offset for at in range(0, len(data), step) for offset in decoder.feed(data[at : at + step])
    ]
    assert found == ha_frames.ReportDecoder().feed(data)
    assert b"".join(map(ha_frames.encode_report, found)) == data[: len(found) * 8]
    at = 0
    while at + ha_frames.HEADER_SIZE <= len(data):
        try:
            header = ha_frames.decode_header(data, at, TRANSFER_BYTES_MAX)
        except ReplicationError:
            return
        assert ha_frames.encode_header(*header) == data[at : at + ha_frames.HEADER_SIZE]
        at += ha_frames.HEADER_SIZE + header.size


def batches(data: bytes) -> None:
    """The messages of a batch make up all of its bytes."""
    written = bytearray()
    try:
        for flag, body, properties in batch.decode(data):
            size = BATCH_ITEM.size + len(body) + 2 + len(properties)
            written += BATCH_ITEM.pack(size, 0, 0, flag, len(body))
            written += body + len(properties).to_bytes(2, "big") + properties
    except CorruptRecordError:
        return
    assert len(written) == len(data)
    assert sum(a == b for a, b in zip(written, data, strict=True)) >= len(data) - 8 * len(
        list(batch.decode(data))
    )


TARGETS = (
    Target("frame", "a connection's frames, in chunks of any size", frame, 1.5),
    Target("json_header", "JSON headers of sends and other requests", json_headers),
    Target("binary_header", "ROCKETMQ binary headers", binary_headers, 1.5),
    Target("header_field", "numbers, booleans and IDs in header fields", header_fields, 1.5),
    Target("proxy_header", "PROXY protocol headers, both versions", proxy, 1.5),
    Target("ha_frame", "slave reports and transfer headers", replicas, 1.5),
    Target("batch", "messages of a batch", batches, 1.5),
)
