"""The manifest of a backup: a list of its contents, written last.

It is the JSON text `{"sha256": DIGEST, "manifest": {...}}`; the digest is of the exact text of the
second value. A backup without a manifest isn't valid.
"""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath
from typing import Annotated

import msgspec

from deploy.terminal.translation import translated

NAME = "manifest.json"
FORMAT = 1
BYTES_MAX = 1 << 30
Size = Annotated[int, msgspec.Meta(ge=0)]


class BackupError(Exception):
    """A backup or a restore failed; the text is one sentence."""


class Entry(msgspec.Struct, frozen=True):
    """A file.

    Attributes:
        path: below the data directory, with `/` between names.
        size: length once restored; bytes after the stored ones are zeros.
        stored: number of bytes in the backup.
        sha256: of the stored bytes, hexadecimal.
        mode: permission bits.
        modified_ns: modification time, nanoseconds since the epoch.
    """

    path: str
    size: Size
    stored: Size
    sha256: str
    mode: Annotated[int, msgspec.Meta(ge=0, le=0o7777)]
    modified_ns: int


class LogRange(msgspec.Struct, frozen=True):
    """The range of a broker's log in the backup.

    Attributes:
        process: the broker's process, such as `broker-b`.
        from_offset, to_offset: commit_log_offsets of the first byte, and after the last record.
    """

    process: str
    from_offset: Size
    to_offset: Size


class Edit(msgspec.Struct, frozen=True):
    """Keys of a configuration file whose values are paths, now below the data directory."""

    file: str
    keys: dict[str, str]


class Manifest(msgspec.Struct, frozen=True):
    """The contents of a backup.

    Attributes:
        made_at: when the backup began, RFC 3339.
        data: the original data directory.
        owner: the name of that directory's owner; empty for a user without a name.
        brokers: masters and slaves.
        has_lake: whether it contains a lake.
        left_out: sentences about parts of the appliance that are stored elsewhere.
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
    """Return the manifest in a file's text.

    Raises:
        BackupError: the text is damaged, or of a later version.
    """
    try:
        signed = msgspec.json.decode(text, type=_Signed)
        body = bytes(signed.manifest).strip()
        if _digest(body) != signed.sha256:
            raise BackupError(translated("The manifest is damaged: the checksum doesn't match."))
        version = msgspec.json.decode(body, type=_Head).format
        if version != FORMAT:
            raise BackupError(
                translated(
                    "The backup has format {version}, but this Trebuchet supports {known}.",
                    version=version,
                    known=FORMAT,
                )
            )
        manifest = msgspec.json.decode(body, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BackupError(translated("The manifest is damaged: {why}.", why=error)) from error
    paths = [each.path for each in manifest.files] + [each.file for each in manifest.edits]
    for path in paths + [place for each in manifest.edits for place in each.keys.values()]:
        require_inside(path)
    return manifest


def require_inside(path: str) -> None:
    """Check that a relative path stays inside its directory.

    Raises:
        BackupError: the path leads outside, or to the manifest.
    """
    pure = PurePosixPath(path)
    is_odd = not path or "\0" in path or path != pure.as_posix() or path == NAME
    if is_odd or pure.is_absolute() or ".." in pure.parts or pure.parts == ():
        raise BackupError(
            translated("The backup contains a path that isn't allowed: {path!r}.", path=path)
        )


def differences(manifest: Manifest, found: dict[str, tuple[int, str]]) -> list[str]:
    """Return a sentence for each file that differs from the manifest.

    `found` has stored bytes and SHA-256 by path.
    """
    sentences = []
    for entry in manifest.files:
        stored, digest = found.get(entry.path, (-1, ""))
        if stored < 0:
            sentences.append(translated("missing: {path}", path=entry.path))
        elif stored < entry.stored:
            lost = entry.stored - stored
            sentences.append(
                translated("truncated: {path} lacks {lost} bytes", path=entry.path, lost=lost)
            )
        elif (stored, digest) != (entry.stored, entry.sha256):
            sentences.append(translated("modified: {path}", path=entry.path))
    return sentences


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
