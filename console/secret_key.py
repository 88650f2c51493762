"""The keys of sessions: a current one that signs, and older ones that are still trusted."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, NamedTuple

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KEY_BYTES = 48
KEY_CHARACTERS_MIN = 50
FALLBACKS_MAX = 2
"""Each signature is tried with every key."""


class Keys(NamedTuple):
    """The key that signs now, and those that signed before."""

    current: str
    fallbacks: Sequence[str]


def load_or_make(path: Path) -> Keys:
    """Return the keys that `path` holds, one a line, the newest first.

    Several processes may call it at the same first start.
    """
    if not path.exists():
        make(path)
    current, *fallbacks = path.read_text(encoding="ascii").split() or [""]
    for key in (current, *fallbacks):
        if len(key) < KEY_CHARACTERS_MIN:
            raise ImproperlyConfigured(
                f"A secret key in {path} has fewer than {KEY_CHARACTERS_MIN} characters; "
                "delete the file and a new one is made (everyone signs in again)."
            )
    return Keys(current, fallbacks)


def make(path: Path) -> None:
    """Write a key that nobody else can read; the first process that links it wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = write_draft(path, [new_key()])
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()


def rotate(path: Path, *, forget: bool) -> Keys:
    """Write a new key before the old ones, or alone when these must not be believed any more."""
    old = load_or_make(path)
    kept = [] if forget else [old.current, *old.fallbacks][:FALLBACKS_MAX]
    keys = Keys(new_key(), kept)
    write_draft(path, [keys.current, *keys.fallbacks]).replace(path)
    return keys


def new_key() -> str:
    return secrets.token_urlsafe(KEY_BYTES)


def write_draft(path: Path, keys: Sequence[str]) -> Path:
    """Write keys, durably, to a file beside `path` that nobody else can read; return its path."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write("".join(f"{key}\n" for key in keys))
        file.flush()
        os.fsync(file.fileno())
    return draft
