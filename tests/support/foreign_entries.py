"""Files that other programs leave in a store's directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SYSTEM_ENTRIES = (
    "lost+found/",
    ".DS_Store",
    "._00000000000000000000",
    # NFS names a deleted file after its inode; this name has twenty digits in a row.
    ".nfs000000000001234500000001",
    ".Trash-1000/",
)
NOTES = ("notes.txt", "core.4211", "old notes/")


def leave_in(directory: Path, *, has_notes: bool = True) -> list[Path]:
    """Create the files that file systems, NFS, macOS and people leave behind; return the paths."""
    made = []
    for name in (*SYSTEM_ENTRIES, *(NOTES if has_notes else ())):
        path = directory / name
        if name.endswith("/"):
            path.mkdir()
            (path / "#1234").write_text("left by fsck")
        else:
            path.write_text("not a store's")
        made.append(path)
    return made
