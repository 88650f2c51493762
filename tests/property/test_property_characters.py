"""The compiled turn and its Python twin reject the same properties, for the same reason."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.errors import PropertiesError
from broker_core.message import properties
from broker_core.protocol.codes import ResponseCode
from tests.support import send_frames
from tests.support.twins import TOPICS, Pair, configuration, is_compiled

if TYPE_CHECKING:
    from random import Random

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)

ROUNDS = 8
SENDS_A_ROUND = 150
CHARACTERS = ("\0", "\x01", "\x02")
HARMLESS = ("\x03", "\t", "\n", "\x1f", "\x7f", "\x85", "é", "𝄞", "a", "b", " ")
FIRST = (
    "",
    "UNIQ_KEY\x01AC11\x02",
    "TAGS\x01TagA\x02KEYS\x01k\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01p\x02",
)
"""Properties before the tested text, including those of a half message."""
KINDS = ("plain", "long names", "binary", "one of a batch", "of all of a batch")


async def test_control_characters_in_properties_are_rejected_the_same(rng: Random) -> None:
    refused: dict[tuple[str, str], int] = {}
    stored = 0
    async with Pair(configuration()) as pair:
        for _ in range(ROUNDS):
            for number in range(SENDS_A_ROUND):
                kind, text = rng.choice(KINDS), text_of(rng)
                reason = reason_of(text)
                seen = len(pair.python.transport.written)

                await pair.feed(send_of(kind, text, number))

                answers = [
                    answer_of(twin.transport.written, seen) for twin in (pair.native, pair.python)
                ]
                assert answers[0] == answers[1], (kind, text)
                code, remark = answers[0]
                if reason is None:
                    assert code == ResponseCode.SUCCESS, (kind, text, remark)
                    stored += 1
                else:
                    assert code == ResponseCode.MESSAGE_ILLEGAL, (kind, text, remark)
                    assert remark == f"the message is illegal: {reason}", (kind, text)
                    character = next(
                        (each for each in CHARACTERS if f"U+{ord(each):04}" in reason), ""
                    )
                    refused[kind, character] = refused.get((kind, character), 0) + 1
            pair.same()
    assert stored > ROUNDS * SENDS_A_ROUND // 5
    assert {(kind, each) for kind in KINDS for each in CHARACTERS} <= refused.keys()


def text_of(rng: Random) -> str:
    """Return the properties as written by a client that doesn't check them."""
    pairs = []
    for _ in range(rng.randrange(1, 4)):
        name, value = ("".join(rng.choices(HARMLESS, k=rng.randrange(1, 5))) for _ in range(2))
        pairs.append([name, value])
    if rng.random() < 0.7:
        pair, side = rng.choice(pairs), rng.randrange(2)
        at = rng.randrange(len(pair[side]) + 1)
        pair[side] = pair[side][:at] + rng.choice(CHARACTERS) + pair[side][at:]
    text = rng.choice(FIRST) + "\x02".join(f"{name}\x01{value}" for name, value in pairs)
    return text + "\x02" * rng.randrange(2)


def reason_of(text: str) -> str | None:
    """Return why a text is rejected, or None if it reads back as sent."""
    try:
        properties.decode_client_properties(text)
        properties.require_no_nul(text)
    except PropertiesError as error:
        return str(error)
    return None


def send_of(kind: str, text: str, opaque: int) -> bytes:
    """Return a frame that sends a message with a text of properties."""
    is_batch = kind.endswith("of a batch")
    fields: dict[str, Any] = send_frames.fields_of(TOPICS[0], 0, text, is_batch=is_batch)
    match kind:
        case "plain":
            return send_frames.send(fields, b"body", opaque)
        case "long names":
            long = {send_frames.LONG_NAMES[letter]: value for letter, value in fields.items()}
            return send_frames.send(long, b"body", opaque, code=send_frames.SEND_MESSAGE)
        case "binary":
            return send_frames.send(fields, b"body", opaque, client=send_frames.BINARY)
        case "one of a batch":
            body = send_frames.batch_item(b"one", b"a\x01b")
            body += send_frames.batch_item(b"two", text.encode())
            return send_frames.send({**fields, "i": "c\x01d"}, body, opaque)
        case _:
            body = send_frames.batch_item(b"one", b"a\x01b")
            return send_frames.send(fields, body, opaque)


def answer_of(written: bytearray, at: int) -> tuple[int, str]:
    """Return the code and remark of the only answer after a position."""
    (length, mark) = struct.unpack_from(">iI", written, at)
    assert at + 4 + length == len(written)
    header_length = mark & 0xFFFFFF
    head = bytes(written[at + 8 : at + 8 + header_length])
    if mark >> 24 == 0:
        header = json.loads(head)
        return header["code"], header.get("remark") or ""
    (code,) = struct.unpack_from(">h", head)
    (remark_length,) = struct.unpack_from(">i", head, 13)
    return code, head[17 : 17 + remark_length].decode()
