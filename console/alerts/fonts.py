"""Fonts of this machine that have what the console's own lacks: Chinese letters above all.

Standard library only: deploy/up asks before anything else is set up.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = "fonts-wqy-microhei"
"""Debian's smallest font with Chinese letters: 1.6 MB to download, 5 MB on the disk."""
FOLDERS = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"))
CHINESE = (
    *("NotoSansCJK*Regular*", "NotoSansSC*Regular*", "SourceHanSans*Regular*"),
    *("wqy-*.tt[cf]", "DroidSansFallback*"),
)
"""The better first."""
FURTHER = ("DejaVuSans.ttf", *CHINESE)


def files(patterns: tuple[str, ...] = FURTHER) -> list[Path]:
    """Return a file of each pattern that has one."""
    found = []
    for pattern in patterns:
        paths = (each for folder in FOLDERS for each in sorted(folder.rglob(pattern)))
        found += list(paths)[:1]
    return found
