"""The chain of the audit: each state of an entry is a link that holds the digest of the one before.

An entry is written before its change and once more when it has ended, so it has a link or two. Its
newest link must match it. Whoever changes, removes or inserts a row behind the console's back
breaks the chain at that place; whoever writes all of it anew gets another last link than the one
that somebody has noted elsewhere.

Two things the links leave out: how often a refused attempt was counted, and the account's key,
which goes with the account (its name stays).
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

FIRST = ""
"""What the first link of all names as the one before."""


def digest_of(entry: Any) -> str:
    """Return the digest of what an entry says; migrations ask, too, with a model of their own."""
    is_counted = entry.refusal_key is not None
    content = [
        entry.pk,
        moment(entry.at),
        str(entry.actor_name),
        # Of a second address of a network the entry names the network instead.
        "" if is_counted else str(entry.address),
        str(entry.action),
        str(entry.subject),
        plain(entry.before),
        plain(entry.after),
        str(entry.outcome),
        str(entry.remark),
        entry.refusal_key,
    ]
    # Entries of older consoles have none of these, nor have models of older migrations.
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
