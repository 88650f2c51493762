"""Random send frames, valid and malformed."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from tests.support.raw_remoting import frame

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE = 10, 310, 320
LONG_NAMES = dict(
    zip(
        "abcdefghijklm",
        (
            *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId"),
            *("sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode"),
            *("maxReconsumeTimes", "batch"),
        ),
        strict=True,
    )
)
WORDS = ("", "a", "TagA", "TagB", "ordre", "größe", "注文", "𝄞𝄢", "x y", 'q"q', "b\\b", "t\tt", "/")
NAMES = (
    *("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "TAGS", "KEYS", "UNIQ_KEY", "own", "größe", "k", "WAITS"),
    *("DELAY", "TRAN_MSG", "TIMER_DELAY_MS", "CLUSTER", "__CRC32#", "", "MIN_OFFSET"),
)
NUMBERS = (
    *("0", "1", "3", "4", "-1", "2147483647", "2147483648", "-2147483648", "-0", "00", "+1", " 1"),
    *("", "1.0", "1e1", "null", "x", "9223372036854775807", "999999999999999999", "१"),
)
BINARY = "BINARY"
"""A client of any language that writes its headers as ROCKETMQ instead of JSON."""
SPACED = "SPACED"
"""A client whose JSON library writes whitespace between the tokens of a header."""
CLIENTS = ("JAVA", "GO", "PYTHON", "CPP", SPACED, BINARY, BINARY)
ONEWAY = 2
LANGUAGES = (0, 1, 9, 12, 255)
HEADER_KEYS = ("code", "extFields", "flag", "language", "opaque", "serializeTypeCurrentRPC")


def fields_of(
    topic: str, queue_id: int, properties: str, *, sys_flag: int = 0, is_batch: bool = False
) -> dict[str, str]:
    values = ["group", topic, "TBW102", "4", str(queue_id), str(sys_flag), "1795251442181", "0"]
    values += [properties, "0", "false", "16", str(is_batch).lower()]
    return dict(zip("abcdefghijklm", values, strict=True))


def send(
    fields: dict[str, Any],
    body: bytes,
    opaque: int,
    *,
    code: int = SEND_MESSAGE_V2,
    flag: int = 0,
    client: str = "JAVA",
) -> bytes:
    """Return a frame as the Java or the Go client writes it."""
    header: dict[str, Any]
    if client == BINARY:
        entries = [(name, str(value)) for name, value in fields.items() if value is not None]
        return frame(binary_header(entries, opaque, code=code, flag=flag), body, serializer=1)
    if client == "GO":
        header = {"code": code, "language": "GO", "version": 317, "opaque": opaque, "flag": flag}
        header |= {"remark": "", "extFields": fields}
    else:
        header = {"code": code, "extFields": fields, "flag": flag, "language": client}
        header |= {"opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": 407}
    if client == SPACED:
        return frame(spaced(header).encode(), body)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=client == "CPP")
    return frame(text.encode(), body)


def spaced(header: dict[str, Any]) -> str:
    """Return a header as JSON with each kind of whitespace wherever JSON allows it."""
    text = json.dumps(header, indent=1, separators=(" ,", "\t:\r "), ensure_ascii=False)
    return f" {text}\n"


def binary_header(
    entries: Iterable[tuple[str, str]],
    opaque: int,
    *,
    code: int = SEND_MESSAGE_V2,
    flag: int = 0,
    language: int = 0,
    remark: str = "",
    behind: bytes = b"",
) -> bytes:
    """Return a header in ROCKETMQ serialization, followed by the invalid bytes `behind`."""
    packed = b""
    for name, value in entries:
        for text, size in ((name.encode(), ">h"), (value.encode(), ">i")):
            packed += struct.pack(size, len(text)) + text
    message = remark.encode()
    head = struct.pack(">hBhiii", code, language, 407, opaque, flag, len(message)) + message
    return head + struct.pack(">i", len(packed)) + packed + behind


def odd_binary(
    rng: Random, fields: dict[str, Any], body: bytes, opaque: int, *, code: int = SEND_MESSAGE_V2
) -> bytes:
    """Return a frame with a valid binary header that no known client writes."""
    entries = [(name, str(value)) for name, value in fields.items()]
    rng.shuffle(entries)
    more: dict[str, Any] = {"language": rng.choice(LANGUAGES)}
    at = rng.randrange(len(entries))
    name, value = entries[at]
    match rng.randrange(9):
        case 0:
            entries[at] = (name, "")
        case 1:
            entries.insert(at, ("", "x"))
        case 2:
            entries.append((name, rng.choice((value, "", "1"))))
        case 3:
            entries[at] = (name, value + "\0")
        case 4:
            more["remark"] = rng.choice(("größe", "\0", "x" * 300))
        case 5:
            more["behind"] = rng.randbytes(rng.randrange(1, 9))
        case 6:
            entries += [(f"x{number}", "y") for number in range(rng.choice((80, 100, 200)))]
        case 7:
            more["flag"] = rng.choice((ONEWAY, 4, 6, -2))
        case _:
            entries.append((rng.choice(("lo", "ns", "bname", "größe", "A", "o")), "\x01\x02\n"))
    return frame(binary_header(entries, opaque, code=code, **more), body, serializer=1)


def properties_of(rng: Random) -> str:
    """Return a properties text, mostly as a client writes it."""
    if rng.random() < 0.4:
        number = rng.randrange(1 << 32)
        text = f"UNIQ_KEY\x01AC11000100002A9F{number:016X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
        return text if rng.random() < 0.5 else text[:-1]
    usual = 11 if rng.random() < 0.9 else len(NAMES)
    pairs = [f"{rng.choice(NAMES[:usual])}\x01{rng.choice(WORDS)}" for _ in range(rng.randrange(6))]
    if rng.random() < 0.1:
        pairs.append(rng.choice(("", "\x01", "WAIT", "WAIT\x01", "a\x01b\x01c", "\x00", "TAGS")))
        rng.shuffle(pairs)
    return "\x02".join(pairs) + ("\x02" if rng.random() < 0.5 else "")


def body_of(rng: Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 7, 15, 63, 64, 65, 100, 127, 200, 1024, 1039)))


def batch_item(body: bytes, properties: bytes, flag: int = 0) -> bytes:
    """Return a message as a batch carries it."""
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def batch_body(rng: Random) -> bytes:
    """Return some messages, occasionally with a stray byte."""
    items = []
    for _ in range(rng.randrange(1, 9)):
        flag = rng.choice((0, 0, 7, -1))
        items.append(batch_item(body_of(rng), properties_of(rng).encode(), flag))
    found = bytearray(b"".join(items))
    if rng.random() < 0.15:
        found[rng.randrange(len(found))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xE0, 0xFF))
    elif rng.random() < 0.1:
        del found[rng.randrange(len(found)) :]
    return bytes(found)


def common_of(rng: Random) -> str:
    """Return the properties of a batch, mostly as a client writes them."""
    if rng.random() < 0.3:
        return properties_of(rng)
    names = rng.sample(("UNIQ_KEY", "WAIT", "TAGS", "KEYS", "own", "größe"), rng.randrange(4))
    text = "\x02".join(f"{name}\x01{rng.choice(WORDS[1:])}" for name in names)
    return text + ("\x02" if rng.random() < 0.5 else "")


def long_of(rng: Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a SEND_MESSAGE; one in three is malformed."""
    long = {LONG_NAMES[letter]: value for letter, value in fields.items()}
    match rng.randrange(12):
        case 0:
            long[rng.choice(("x", "a", "b", "brokerName"))] = rng.choice(WORDS)
        case 1:
            long.pop(rng.choice(list(long)))
        case 2:
            names = ("queueId", "sysFlag", "flag", "reconsumeTimes", "defaultTopicQueueNums")
            long[rng.choice(names)] = rng.choice(NUMBERS)
        case 3:
            long["sysFlag"] = rng.choice(("1", "4", "8", "16"))
        case _:
            pass
    return long


def any_frame(rng: Random, topics: tuple[str, ...], opaque: int) -> bytes:
    """Return a send: two thirds are plain, the others malformed in some way."""
    topic, queue_id = rng.choice(topics), rng.randrange(4)
    fields: dict[str, Any] = fields_of(topic, queue_id, properties_of(rng))
    client = rng.choice(CLIENTS)
    flag = ONEWAY if rng.random() < 0.08 else 0
    kind = rng.randrange(25)
    match kind:
        case 0 | 12 | 13 | 14:
            fields["i"] = common_of(rng)
            code = rng.choice((SEND_MESSAGE_V2, SEND_BATCH_MESSAGE))
            fields["m"] = "true" if code == SEND_MESSAGE_V2 else rng.choice(("true", "false"))
            if rng.random() < 0.1:
                fields["f"] = str(rng.choice((1, 4, 8, 16)))
            return send(fields, batch_body(rng), opaque, code=code, flag=flag, client=client)
        case 1:
            fields[rng.choice("defghjl")] = rng.choice(NUMBERS)
        case 2:
            fields["b"] = rng.choice(("Unknown", "", "SCHEDULE_TOPIC_XXXX", "a/b", "T" * 300))
        case 3:
            fields.pop(rng.choice("abcdefghijklm"))
        case 4:
            fields[rng.choice(("n", "o", "z", "A", "lo", "nsd", "bname"))] = rng.choice(WORDS)
        case 5:
            fields["f"] = str(rng.choice((1, 2, 4, 8, 12, 16, 32, 64, 0x7FFFFFFF, -1)))
        case 6:
            return send(
                long_of(rng, fields), body_of(rng), opaque, code=SEND_MESSAGE, client=client
            )
        case 15:
            fields |= {"i": common_of(rng), "m": "true"}
            return send(
                long_of(rng, fields), batch_body(rng), opaque, code=SEND_MESSAGE, client=client
            )
        case 7:
            return send(fields, body_of(rng), opaque, flag=rng.choice((2, 0, 4)), client=client)
        case 8:
            fields[rng.choice("aceik")] = rng.choice(WORDS)
        case 9:
            fields["i"] = "p\x01" + "x" * rng.choice((32_740, 32_766, 32_767, 40_000))
        case 10:
            return send(fields, bytes(rng.choice((4_000, 5_000))), opaque, client=client)
        case 11:
            fields["j"] = rng.choice((None, 1, "16", True))
        case 16:
            return odd_binary(rng, fields, body_of(rng), opaque)
        case _:
            pass
    return send(fields, body_of(rng), opaque, flag=flag, client=client)


def damaged(rng: Random, data: bytes) -> bytes:
    """Return a frame with some bytes changed; its length mostly stays correct."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(8 if rng.random() < 0.98 else 0, len(changed))
        match rng.randrange(4):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                changed[at] ^= 1 << rng.randrange(8)
            case 2:
                changed[at] = rng.choice(b'"\\{}[]:,0-u\x00\x01\x02\x1f\x7f\x80\xc0\xed\xf4')
            case _:
                # Insert one byte, so that the header is longer.
                changed[at:at] = bytes([rng.choice(b'"\\ 0,:x')])
                length, header = struct.unpack_from(">ii", changed)
                if at >= 8 and header & 0xFFFFFF < 1 << 20:
                    struct.pack_into(">ii", changed, 0, length + 1, header + 1)
    return bytes(changed)


def pieces(rng: Random, data: bytes) -> list[bytes]:
    """Cut a stream at arbitrary positions."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(8)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


def frames_in(data: bytes) -> list[bytes]:
    """Cut a stream at its frame boundaries."""
    frames = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        frames.append(data[:end])
        data = data[end:]
    return frames
