"""Logs of small records, and damage as a bad disk or an attacker would cause it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from broker_core.formats import record
from broker_core.message.ids import host_bytes

if TYPE_CHECKING:
    import random

HOSTS = (host_bytes("127.0.0.1", 10911), host_bytes("2001:db8::7", 10911))
NUMBERS = (0, 1, -1, 7, 90, 91, 127, 128, 255, 256, 32767, 65536, 2**31 - 1, -(2**31))
MAGICS = (record.MESSAGE_MAGIC, record.MESSAGE_MAGIC_V2, record.BLANK_MAGIC)
# Offsets of a record's length fields.
TELLING = (0, 4, 8, 28, 36, 56, 84)
PROPERTIES = (
    b"",
    b"UNIQ_KEY\x01FD00\x02TAGS\x01TagA\x02KEYS\x01a b",
    b"KEYS\x01 one  two \x02TAGS\x01\xff\xfe\x02KEYS\x01three\x02",
    b"\x01\x02\x02\x01x\x02a\x01\x02b\x01c\x01d\x02\xc3\xa9\x01v",
    b"".join(b"k%d\x01v\x02" % number for number in range(12)),
)


def a_log(rng: random.Random, records: int) -> tuple[bytearray, list[int]]:
    """Return a log and the offsets of its records."""
    log, starts = bytearray(), []
    for number in range(records):
        room = bytearray(1024)
        sys_flag = rng.choice([0, 0, 0, 8, 1, 0x301])
        starts.append(len(log))
        size = record.encode_into(
            room,
            0,
            topic=rng.choice([b"orders", b"bills", b"%RETRY%g", b"RMQ_SYS_TRACE_TOPIC", b"z\xff"]),
            queue_id=number % 8,
            queue_offset=number,
            commit_log_offset=len(log),
            body=rng.randbytes(rng.choice([0, 1, 63, 64, 65, 200])),
            properties=rng.choice(PROPERTIES),
            flag=rng.randrange(-(2**31), 2**31),
            sys_flag=sys_flag,
            born_timestamp=rng.choice([0, 1_795_251_442_000, -1, 2**62]),
            born_host=rng.choice(HOSTS),
            store_timestamp=1_795_251_442_000 + number,
            store_host=rng.choice(HOSTS),
            reconsume_times=number % 3,
            prepared_transaction_offset=rng.randrange(2**40),
        )
        if rng.random() < 0.05:
            record.BLANK.pack_into(room, 0, size, record.MESSAGE_MAGIC_V2)
        log += room[:size]
    return log, starts


def mutate(rng: random.Random, log: bytearray, starts: list[int]) -> None:
    """Change a few bytes of one record, mostly in its length fields."""
    at = rng.choice(starts)
    kind = rng.randrange(5)
    if kind == 0:
        place, content = at + rng.choice(TELLING), struct.pack(">i", rng.choice(NUMBERS))
    elif kind == 1:
        place, content = at + 4, struct.pack(">i", rng.choice(MAGICS))
    elif kind == 2:
        place, content = rng.randrange(len(log)), bytes([rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF])])
    elif kind == 3:
        place = rng.randrange(len(log))
        content = bytes([log[place] ^ 1 << rng.randrange(8)])
    else:
        source = rng.choice(starts)
        place, content = at + rng.randrange(120), bytes(log[source : source + rng.randrange(120)])
    content = content[: max(0, len(log) - place)]
    log[place : place + len(content)] = content
