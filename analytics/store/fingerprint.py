"""Fingerprint: a hash of the bytes before an offset, which distinguishes logs."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from analytics.store.log_files import opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.store.log_files import LogFile

FINGERPRINT_BYTES = 4096
NO_FINGERPRINT = 0


def fingerprint_before(files: Sequence[LogFile], offset: int) -> int | None:
    """Return a hash of the last bytes before an offset, or None if the log lacks them.

    If the log begins at the offset, there is nothing to hash: return NO_FINGERPRINT.
    """
    if not files or offset <= files[0].from_offset:
        return NO_FINGERPRINT
    file = next((each for each in files if each.from_offset < offset <= each.to_offset), None)
    if file is None:
        return None
    count = min(FINGERPRINT_BYTES, offset - file.from_offset)
    try:
        with opened(file.path) as descriptor:
            data = os.pread(descriptor, count, offset - count - file.from_offset)
    except OSError:
        return None
    if len(data) < count:
        return None
    digest = hashlib.blake2b(data, digest_size=8).digest()
    return (int.from_bytes(digest) >> 1) or 1
