"""When the certificates of a PEM file end.

Source: RFC 5280, 4.1 (Certificate, TBSCertificate, Validity). The ssl module says it only of a
peer's certificate.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
VERSION_TAG, UTC_TIME_TAG = 0xA0, 0x17
LONG_LENGTH = 0x80
CENTURY_FROM = 50
"""UTCTime has two digits of the year: from 50 on they are of the 20th century."""


def first_end(path: Path) -> datetime | None:
    """Return when the first of a file's certificates ends, None if that can't be read.

    A chain is of use no longer than each certificate in it.
    """
    try:
        blocks = BLOCK.findall(path.read_text(encoding="ascii", errors="replace"))
        ends = [end_of(ssl.PEM_cert_to_DER_cert(each)) for each in blocks]
    except (OSError, ValueError, IndexError):
        return None
    return min(ends, default=None)


def end_of(certificate: bytes) -> datetime:
    """Return when a certificate in DER ends.

    Raises:
        ValueError, IndexError: it is none.
    """
    _, content, _ = _element(certificate, 0)
    _, at, _ = _element(certificate, content)
    tag, _, behind = _element(certificate, at)
    if tag == VERSION_TAG:
        at = behind
    for _ in ("serial number", "signature", "issuer"):
        _, _, at = _element(certificate, at)
    _, not_before, _ = _element(certificate, at)
    _, _, not_after = _element(certificate, not_before)
    tag, content, behind = _element(certificate, not_after)
    text = certificate[content:behind].decode("ascii")
    if tag == UTC_TIME_TAG:
        text = ("19" if int(text[:2]) >= CENTURY_FROM else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """Return an element's tag, where its content begins, and where it ends."""
    tag, length = data[at], data[at + 1]
    at += 2
    if length & LONG_LENGTH:
        digits = length & ~LONG_LENGTH
        length = int.from_bytes(data[at : at + digits])
        at += digits
    return tag, at, at + length
