"""Read when the certificates of a PEM file expire.

Source: RFC 5280, 4.1 (Certificate, TBSCertificate, Validity). The ssl module reads this date only
from a peer's certificate.
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
"""UTCTime has two-digit years: 50 to 99 mean 1950 to 1999."""


def first_expiry(path: Path) -> datetime | None:
    """Return when the first of a file's certificates expires, or None if the file can't be read.

    A chain is valid only while every certificate in it is.
    """
    try:
        blocks = BLOCK.findall(path.read_text(encoding="ascii", errors="replace"))
        ends = [expiry_of(ssl.PEM_cert_to_DER_cert(each)) for each in blocks]
    except (OSError, ValueError, IndexError):
        return None
    return min(ends, default=None)


def expiry_of(certificate: bytes) -> datetime:
    """Return when a certificate in DER expires.

    Raises:
        ValueError, IndexError: the bytes aren't a certificate.
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
    """Return an element's tag and the start and end of its content."""
    tag, length = data[at], data[at + 1]
    at += 2
    if length & LONG_LENGTH:
        digits = length & ~LONG_LENGTH
        length = int.from_bytes(data[at : at + digits])
        at += digits
    return tag, at, at + length
