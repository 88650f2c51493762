"""Compiles the message catalogues: `.po` files to the `.mo` files that gettext reads.

Few machines have GNU's msgfmt, and compiled files in the repository could become outdated. The
console therefore compiles the sources itself, once for each version of their contents.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import polib

if TYPE_CHECKING:
    from pathlib import Path

DIGEST_CHARACTERS = 16


def compiled(sources: Path, target: Path) -> Path:
    """Return the folder with the compiled catalogues of `sources`, creating it if needed.

    The name of the folder depends on the contents of the sources, so each version of the console
    has a folder of its own below `target`. Several processes may call this at the same time on the
    first start.
    """
    found = {each: each.read_bytes() for each in sorted(sources.glob("*/LC_MESSAGES/*.po"))}
    digest = hashlib.sha256(b"\0".join(found.values())).hexdigest()[:DIGEST_CHARACTERS]
    for source in found:
        file = target / digest / source.relative_to(sources).with_suffix(".mo")
        if file.exists():
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{os.getpid()}")
        polib.pofile(str(source)).save_as_mofile(str(part))
        part.replace(file)
    return target / digest
