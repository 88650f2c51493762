"""A message's body as people read it: JSON set out, else text, else bytes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

ROW_BYTES = 16
DUMP_BYTES_MAX = 4_096
UTF8_BYTES_MAX = 4


class Body(NamedTuple):
    """`kind` is json, text or bytes."""

    kind: str
    text: str


def body_of(data: bytes, *, is_cut: bool) -> Body:
    """Return what a page shows of a body's beginning; `is_cut` where there is more of it."""
    # The end of what was cut may be a part of a character.
    text = decoded(data, lacking_max=UTF8_BYTES_MAX - 1 if is_cut else 0)
    if text is None:
        return Body("bytes", dump(data[:DUMP_BYTES_MAX]))
    if not is_cut and text.lstrip()[:1] in ("{", "["):
        try:
            # It moves the text of numbers, and rounds none.
            return Body("json", msgspec.json.format(text, indent=2))
        except (msgspec.DecodeError, RecursionError):
            pass
    return Body("text", text)


def decoded(data: bytes, lacking_max: int) -> str | None:
    """Return the text of bytes, of which some may lack at the end; None: they are no text."""
    for lacking in range(lacking_max + 1):
        try:
            text = data[: len(data) - lacking].decode()
        except UnicodeDecodeError:
            continue
        return text if all(each.isprintable() or each in "\t\r\n" for each in text) else None
    return None


def dump(data: bytes) -> str:
    """Return bytes in rows: where, in hex, as ASCII."""
    rows = []
    for at in range(0, len(data), ROW_BYTES):
        row = data[at : at + ROW_BYTES]
        shown = "".join(
            chr(each) if chr(each).isprintable() and each < 127 else "." for each in row
        )
        rows.append(f"{at:06x}  {row.hex(' '):<{ROW_BYTES * 3}} {shown}")
    return "\n".join(rows)
