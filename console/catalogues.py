"""Compiles the message catalogues: `.po` files to the `.mo` files that gettext reads.

Few machines have GNU's msgfmt, and compiled files in the repository could become outdated. The
console therefore compiles the sources itself, once for each version of their contents.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from ast import literal_eval
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MAGIC = 0x950412DE
DIGEST_CHARACTERS = 16
QUOTED = r'"(?:[^"\\]|\\.)*"'
FIELD = re.compile(
    rf"^(msgctxt|msgid|msgid_plural|msgstr(?:\[\d\])?) ((?:{QUOTED}\n?)+)", re.MULTILINE
)


class Entry(NamedTuple):
    """A message: its English forms and its translated forms, empty if untranslated."""

    context: str
    english: tuple[str, ...]
    said: tuple[str, ...]
    is_fuzzy: bool

    @property
    def key(self) -> str:
        """The key of the message in a compiled catalogue."""
        return (f"{self.context}\4" if self.context else "") + "\0".join(self.english)


def entries(text: str) -> Iterator[Entry]:
    """Yield the messages of a `.po` file, starting with its header, whose English text is empty."""
    for block in text.split("\n\n"):
        fields = {name: unquoted(value) for name, value in FIELD.findall(block + "\n")}
        if "msgid" in fields:
            english = [fields[name] for name in ("msgid", "msgid_plural") if name in fields]
            said = [value for name, value in fields.items() if name.startswith("msgstr")]
            is_fuzzy = any(line.startswith("#,") and "fuzzy" in line for line in block.split("\n"))
            yield Entry(fields.get("msgctxt", ""), tuple(english), tuple(said), is_fuzzy)


def unquoted(value: str) -> str:
    return "".join(str(literal_eval(part)) for part in re.findall(QUOTED, value))


def mo_bytes(table: Mapping[str, str]) -> bytes:
    """Return a compiled catalogue; plural forms are separated by NUL."""
    ordered = sorted((key.encode(), text.encode()) for key, text in table.items())
    texts = [key for key, _said in ordered] + [said for _key, said in ordered]
    count = len(ordered)
    start = 28 + 16 * count
    index = bytearray()
    for raw in texts:
        index += struct.pack("<2I", len(raw), start)
        start += len(raw) + 1
    head = struct.pack("<7I", MAGIC, 0, count, 28, 28 + 8 * count, 0, 0)
    return head + bytes(index) + b"\0".join((*texts, b""))


def compiled(sources: Path, target: Path) -> Path:
    """Return the folder with the compiled catalogues of `sources`, creating it if needed.

    The name of the folder depends on the contents of the sources, so each version of the console
    has a folder of its own below `target`. Several processes may call this at the same time on the
    first start.
    """
    found = {each: each.read_bytes() for each in sorted(sources.glob("*/LC_MESSAGES/*.po"))}
    digest = hashlib.sha256(b"\0".join(found.values())).hexdigest()[:DIGEST_CHARACTERS]
    for source, raw in found.items():
        file = target / digest / source.relative_to(sources).with_suffix(".mo")
        if file.exists():
            continue
        table = {
            each.key: "\0".join(each.said)
            for each in entries(raw.decode())
            if all(each.said) and not each.is_fuzzy
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{os.getpid()}")
        part.write_bytes(mo_bytes(table))
        part.replace(file)
    return target / digest
