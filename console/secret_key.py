"""The key that signs sessions, made at the first start."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from pathlib import Path

KEY_BYTES = 48
KEY_CHARACTERS_MIN = 50


def load_or_make(path: Path) -> str:
    """Return the key that `path` holds; several processes may call it at the same first start."""
    if not path.exists():
        make(path)
    key = path.read_text(encoding="ascii").strip()
    if len(key) < KEY_CHARACTERS_MIN:
        raise ImproperlyConfigured(
            f"The secret key in {path} has fewer than {KEY_CHARACTERS_MIN} characters; "
            "delete the file and a new one is made (everyone signs in again)."
        )
    return key


def make(path: Path) -> None:
    """Write a key that nobody else can read; the first process that links it wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink()
