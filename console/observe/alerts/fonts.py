"""Finds fonts on this machine for characters that the console's font lacks, mainly Chinese.

Uses only the standard library, because deploy/up runs it before anything else is installed.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = "fonts-wqy-microhei"
"""Debian's smallest font with Chinese characters: 1.6 MB to download, 5 MB on disk."""
FOLDERS = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"))
CHINESE = (
    *("NotoSansCJK*Regular*", "NotoSansSC*Regular*", "SourceHanSans*Regular*"),
    *("wqy-*.tt[cf]", "DroidSansFallback*"),
)
"""In order of preference."""
FURTHER = ("DejaVuSans.ttf", *CHINESE)


def files(patterns: tuple[str, ...] = FURTHER) -> list[Path]:
    """Return one file for each pattern that matches."""
    found = []
    for pattern in patterns:
        paths = (each for folder in FOLDERS for each in sorted(folder.rglob(pattern)))
        found += list(paths)[:1]
    return found
