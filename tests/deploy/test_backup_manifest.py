"""The manifest of a backup: contents and invalid files."""

from __future__ import annotations

import msgspec
import pytest

from deploy.archive import manifest as backup_manifest
from deploy.archive.manifest import BackupError, Edit, Entry, LogRange, Manifest

ENTRY = Entry("store/abort", 10, 4, "ab" * 32, 0o600, 1)


def a_manifest(**changes: object) -> Manifest:
    manifest = Manifest(
        format=backup_manifest.FORMAT,
        made_at="2026-11-23T10:00:00+00:00",
        data="/data",
        owner="trebuchet",
        versions={"python": "3.11"},
        has_lake=False,
        brokers=[LogRange("broker", 0, 100)],
        edits=[Edit("broker.conf", {"storePathRootDir": "store"})],
        left_out=[],
        files=[ENTRY],
    )
    return msgspec.structs.replace(manifest, **changes)


def test_a_written_manifest_is_read_back_unchanged() -> None:
    assert backup_manifest.decode(backup_manifest.encode(a_manifest())) == a_manifest()


def test_any_flipped_bit_of_a_manifest_is_detected() -> None:
    text = backup_manifest.encode(a_manifest())

    for position in range(len(text.rstrip())):
        for bit in range(8):
            damaged = bytearray(text)
            damaged[position] ^= 1 << bit
            try:
                found = backup_manifest.decode(bytes(damaged))
            except BackupError:
                continue
            # Whitespace may differ.
            assert found == a_manifest()


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"\xff", b'{"sha256":"","manifest":{}}'])
def test_an_invalid_manifest_is_rejected_with_an_explanation(text: bytes) -> None:
    with pytest.raises(BackupError, match=r"The manifest is damaged"):
        backup_manifest.decode(text)


def test_a_later_format_is_rejected_by_its_number() -> None:
    text = backup_manifest.encode(a_manifest(format=backup_manifest.FORMAT + 1))

    with pytest.raises(BackupError, match=r"format 2, but this Trebuchet supports 1"):
        backup_manifest.decode(text)


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", ".", "a\0b", "manifest.json"]
)
def test_a_path_that_leads_outside_is_rejected(path: str) -> None:
    entries = [ENTRY, msgspec.structs.replace(ENTRY, path=path)]

    edits = [Edit("broker.conf", {"aclFile": path})]

    for manifest in (a_manifest(files=entries), a_manifest(edits=edits)):
        text = backup_manifest.encode(manifest)
        with pytest.raises(BackupError, match="contains a path that isn't allowed"):
            backup_manifest.decode(text)


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        ({"store/abort": (4, "ab" * 32), "other": (1, "")}, []),
        ({}, ["missing: store/abort"]),
        ({"store/abort": (3, "cd" * 32)}, ["truncated: store/abort lacks 1 bytes"]),
        ({"store/abort": (4, "cd" * 32)}, ["modified: store/abort"]),
        ({"store/abort": (5, "ab" * 32)}, ["modified: store/abort"]),
    ],
)
def test_a_modified_file_is_named(found: dict[str, tuple[int, str]], sentences: list[str]) -> None:
    assert backup_manifest.differences(a_manifest(), found) == sentences
