"""Huffman code of header strings (RFC 7541, 5.2 and Appendix B).

The code is canonical: the lengths of its 257 codes define it. The decoder processes a byte per
step. Steps are computed on first use and cached: all 65,536 possible steps would use 8 MB, and the
steps that real headers need use a few hundred KB.
"""

from __future__ import annotations

from broker_core.errors import Http2ConnectionError
from broker_core.http2.codes import ErrorCode

EOS = 256
# fmt: off
LENGTHS = (
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
)
# fmt: on
assert len(LENGTHS) == EOS + 1
PADDING_BITS_MAX = 7


def _codes() -> list[int]:
    codes = [0] * len(LENGTHS)
    code = length = 0
    for next_length, symbol in sorted((length, symbol) for symbol, length in enumerate(LENGTHS)):
        code <<= next_length - length
        length = next_length
        codes[symbol] = code
        code += 1
    assert code == 1 << length
    return codes


CODES = _codes()
"""The code of each symbol as a number of `LENGTHS[symbol]` bits."""


def _tree() -> list[list[int]]:
    """Return the inner nodes: for bits 0 and 1 the next node, or a symbol as -1 - symbol."""
    nodes = [[0, 0]]
    for symbol, (code, length) in enumerate(zip(CODES, LENGTHS, strict=True)):
        node = 0
        for bit in range(length - 1, 0, -1):
            branch = code >> bit & 1
            if not nodes[node][branch]:
                nodes[node][branch] = len(nodes)
                nodes.append([0, 0])
            node = nodes[node][branch]
        nodes[node][code & 1] = -1 - symbol
    return nodes


NODES = _tree()
"""The inner nodes of the code tree, starting with its root."""
assert len(NODES) == EOS


def _final_nodes() -> frozenset[int]:
    node, found = 0, {0}
    for _ in range(PADDING_BITS_MAX):
        node = NODES[node][1]
        found.add(node)
    return frozenset(found)


FINAL_NODES = _final_nodes()
"""Nodes where a string may end: up to 7 bits into the code of EOS, which is all ones."""


class _Steps(dict[int, tuple[int, str]]):
    """Maps a shifted node | byte to the next shifted node and the decoded text."""

    def __missing__(self, key: int) -> tuple[int, str]:
        node, byte = key >> 8, key & 0xFF
        text = ""
        for bit in range(7, -1, -1):
            node = NODES[node][byte >> bit & 1]
            if node < 0:
                symbol = -1 - node
                if symbol == EOS:
                    raise _wrong("a Huffman string contains EOS")
                text += chr(symbol)
                node = 0
        step = self[key] = (node << 8, text)
        return step


_STEPS = _Steps()


def decode(data: bytes) -> str:
    """Return the decoded text, one character per byte.

    Raises:
        Http2ConnectionError: the padding isn't a prefix of EOS, or the string contains EOS.
    """
    steps = _STEPS
    node = 0
    text = ""
    for byte in data:
        node, piece = steps[node | byte]
        text += piece
    if node >> 8 not in FINAL_NODES:
        raise _wrong("a Huffman string ends within a code")
    return text


def encode(text: str) -> bytes:
    """Encode a text of characters below 256, padded with ones."""
    bits = length = 0
    for symbol in text.encode("latin-1"):
        bits = bits << LENGTHS[symbol] | CODES[symbol]
        length += LENGTHS[symbol]
    padding = -length % 8
    return (bits << padding | (1 << padding) - 1).to_bytes((length + padding) // 8, "big")


def _wrong(reason: str) -> Http2ConnectionError:
    return Http2ConnectionError(ErrorCode.COMPRESSION_ERROR, reason)
