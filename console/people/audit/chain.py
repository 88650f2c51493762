"""The hash chain of the audit log: each state of an entry is a link with the previous link's
digest.

An entry is written before its change and updated when the change has ended, so it has one or two
links, and must match its newest link. Changing, removing or inserting a row outside the console
breaks the chain at that link. Rewriting the whole chain changes the hash of the last link, which an
administrator can record elsewhere.

The links leave out two values: how often a refused attempt was counted, and the account's primary
key, which is removed with the account (its name stays).
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

FIRST = ""
"""The previous digest of the first link."""


def digest_of(entry: Any) -> str:
    """Return the digest of an entry's contents; migrations call it with historical models."""
    is_counted = entry.refusal_key is not None
    content = [
        entry.pk,
        moment(entry.at),
        str(entry.actor_name),
        # A second address of the same network replaces the entry's address with the network.
        "" if is_counted else str(entry.address),
        str(entry.action),
        str(entry.subject),
        plain(entry.before),
        plain(entry.after),
        str(entry.outcome),
        str(entry.remark),
        entry.refusal_key,
    ]
    # Entries of older releases, and models in older migrations, lack these fields.
    content += [
        each for each in (getattr(entry, "token", ""), getattr(entry, "request_id", "")) if each
    ]
    return hashlib.sha256(text_of(content).encode()).hexdigest()


def hash_of(
    previous: str, number: int, entry: int, at: datetime, digest: str, *, is_refusal: bool
) -> str:
    content = [previous, number, entry, moment(at), digest, is_refusal]
    return hashlib.sha256(text_of(content).encode()).hexdigest()


def plain(value: Any) -> Any:
    """Return a value as it is after a round trip through the database."""
    return json.loads(json.dumps(value))


def text_of(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")
