"""Mutation: inputs changed without coverage guidance, and inputs with a repeated piece."""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING

from tools.fuzz.target import INPUT_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

CHANGES_MAX = 5
INTERESTING = (
    *(b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"\x7f\xff\xff\xff"),
    *(b"\x80\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f" + b"\xff" * 7, b"\x80" + b"\0" * 7),
    *(b"-1", b"0", b"9" * 20, b"1e400", b"\xc2\xb2", b"\xd9\xa3", b"\xed\xa0\x80", b"null", b"{}"),
    *(b"[]", b'"', b"\\", b"\n", b" ", b"true", b"(", b")", b"'", b"=", b":", b",", b"||", b"*"),
)


def mutated(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return an input of the corpus, changed in a few places."""
    data = bytearray(rng.choice(corpus) if corpus else b"")
    for _ in range(rng.randint(1, CHANGES_MAX)):
        at = rng.randrange(len(data) + 1)
        length = min(1 << rng.randrange(8), len(data) - at)
        match rng.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.randrange(256)
            case 2:
                del data[at : at + length]
            case 3:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 4:
                word = rng.choice(INTERESTING)
                data[at : at + rng.choice((0, len(word)))] = word
            case 5:
                data[at:at] = data[at : at + length] * rng.randint(1, 4)
            case _:
                other = rng.choice(corpus) if corpus else b""
                start = rng.randrange(len(other) + 1)
                data[at : at + length] = other[start : start + rng.randint(1, 64)]
    return bytes(data[:INPUT_BYTES_MAX])


def grown(data: bytes, size: int) -> bytes:
    """Return the input with a piece of it repeated until it has `size` bytes."""
    if not data:
        return data
    # The same piece for the same input, so that a run can be repeated.
    rng = random.Random(zlib.crc32(data))
    start = rng.randrange(len(data))
    piece = data[start : start + (1 << rng.randrange(8))]
    times = max(1, (size - len(data)) // len(piece))
    return data[:start] + piece * times + data[start:]
