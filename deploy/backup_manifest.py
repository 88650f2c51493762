"""The manifest of a backup: what is in it, written last.

It is the JSON text `{"sha256": DIGEST, "manifest": {...}}`; the digest is that of the second text
as it stands there. A backup without a manifest is none.
"""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath
from typing import Annotated

import msgspec

from deploy.words import told

NAME = "manifest.json"
FORMAT = 1
BYTES_MAX = 1 << 30
Size = Annotated[int, msgspec.Meta(ge=0)]


class BackupError(Exception):
    """A backup or a restore cannot be done; the text is one sentence."""


class Entry(msgspec.Struct, frozen=True):
    """A file.

    Attributes:
        path: below the data directory, with `/` between names.
        size: bytes that it has once restored; behind those that are stored there are zeros.
        stored: bytes that the backup has of it.
        sha256: of the stored bytes, hexadecimal.
        mode: permission bits.
        modified_ns: when it was modified, nanoseconds since the epoch.
    """

    path: str
    size: Size
    stored: Size
    sha256: str
    mode: Annotated[int, msgspec.Meta(ge=0, le=0o7777)]
    modified_ns: int


class LogRange(msgspec.Struct, frozen=True):
    """What the backup has of a broker's log.

    Attributes:
        process: the broker's process, such as `broker-b`.
        from_offset, to_offset: commit_log_offsets of the first byte, and behind the last record.
    """

    process: str
    from_offset: Size
    to_offset: Size


class Edit(msgspec.Struct, frozen=True):
    """Keys of a configuration file that name places, which are below the data directory."""

    file: str
    keys: dict[str, str]


class Manifest(msgspec.Struct, frozen=True):
    """All of a backup.

    Attributes:
        made_at: when it began, RFC 3339.
        data: the data directory that it was made from.
        owner: the name of that directory's owner; empty for a user without a name.
        brokers: masters and slaves.
        has_lake: whether a lake is in it.
        left_out: sentences about what belongs to the appliance and is kept elsewhere.
    """

    format: int
    made_at: str
    data: str
    owner: str
    versions: dict[str, str]
    has_lake: bool
    brokers: list[LogRange]
    edits: list[Edit]
    left_out: list[str]
    files: list[Entry]


class _Signed(msgspec.Struct, frozen=True):
    sha256: str
    manifest: msgspec.Raw


class _Head(msgspec.Struct, frozen=True):
    format: int


def encode(manifest: Manifest) -> bytes:
    """Return the text of the manifest's file."""
    text = msgspec.json.encode(manifest)
    return b'{"sha256":"%s","manifest":\n%s}\n' % (_digest(text).encode(), text)


def decode(text: bytes) -> Manifest:
    """Return the manifest of a file's text.

    Raises:
        BackupError: it is damaged, or of a later version.
    """
    try:
        signed = msgspec.json.decode(text, type=_Signed)
        body = bytes(signed.manifest).strip()
        if _digest(body) != signed.sha256:
            raise BackupError(told("The manifest is damaged: its checksum is another one."))
        version = msgspec.json.decode(body, type=_Head).format
        if version != FORMAT:
            raise BackupError(
                told(
                    "The backup has format {version}, and this Trebuchet reads {known}.",
                    version=version,
                    known=FORMAT,
                )
            )
        manifest = msgspec.json.decode(body, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BackupError(told("The manifest is damaged: {why}.", why=error)) from error
    paths = [each.path for each in manifest.files] + [each.file for each in manifest.edits]
    for path in paths + [place for each in manifest.edits for place in each.keys.values()]:
        require_inside(path)
    return manifest


def require_inside(path: str) -> None:
    """Check that a path leads to a place below the directory that it is relative to.

    Raises:
        BackupError: it leads elsewhere, or to the manifest.
    """
    pure = PurePosixPath(path)
    is_odd = not path or "\0" in path or path != pure.as_posix() or path == NAME
    if is_odd or pure.is_absolute() or ".." in pure.parts or pure.parts == ():
        raise BackupError(
            told("The backup names a file that it may not have: {path!r}.", path=path)
        )


def differences(manifest: Manifest, found: dict[str, tuple[int, str]]) -> list[str]:
    """Return a sentence for each file that is not as the manifest says it.

    `found` are stored bytes and SHA-256 by path.
    """
    sentences = []
    for entry in manifest.files:
        stored, digest = found.get(entry.path, (-1, ""))
        if stored < 0:
            sentences.append(told("missing: {path}", path=entry.path))
        elif stored < entry.stored:
            lost = entry.stored - stored
            sentences.append(told("cut: {path} lacks {lost} bytes", path=entry.path, lost=lost))
        elif (stored, digest) != (entry.stored, entry.sha256):
            sentences.append(told("altered: {path}", path=entry.path))
    return sentences


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
