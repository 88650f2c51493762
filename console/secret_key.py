"""The keys that sign sessions: the current key, and older keys that are still trusted."""

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
"""Each signature is checked with every key."""


class Keys(NamedTuple):
    """The current key and the previous ones."""

    current: str
    fallbacks: Sequence[str]


def load_or_make(path: Path) -> Keys:
    """Return the keys in `path`, one per line, newest first; create the file if it's missing.

    Several processes may call this at the same time on the first start.
    """
    if not path.exists():
        make(path)
    current, *fallbacks = path.read_text(encoding="ascii").split() or [""]
    for key in (current, *fallbacks):
        if len(key) < KEY_CHARACTERS_MIN:
            raise ImproperlyConfigured(
                f"A secret key in {path} has fewer than {KEY_CHARACTERS_MIN} characters. Delete "
                "the file to generate a new key; everyone then has to sign in again."
            )
    return Keys(current, fallbacks)


def make(path: Path) -> None:
    """Write a key that only the owner can read; the first process to link the file wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = write_draft(path, [new_key()])
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()


def rotate(path: Path, *, forget: bool) -> Keys:
    """Write a new key before the old ones, or alone if the old ones must no longer be trusted."""
    old = load_or_make(path)
    kept = [] if forget else [old.current, *old.fallbacks][:FALLBACKS_MAX]
    keys = Keys(new_key(), kept)
    write_draft(path, [keys.current, *keys.fallbacks]).replace(path)
    return keys


def new_key() -> str:
    return secrets.token_urlsafe(KEY_BYTES)


def write_draft(path: Path, keys: Sequence[str]) -> Path:
    """Write keys durably to a private file next to `path`; return the file's path."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write("".join(f"{key}\n" for key in keys))
        file.flush()
        os.fsync(file.fileno())
    return draft
