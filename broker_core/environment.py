"""The environment of child processes: the variables they need, without secrets.

Any user who can read a process's /proc entry can read its environment while it lives, and each
process that it starts inherits it. Secrets are passed in files that only the broker's user may
read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECRET_NAME = re.compile(
    r"PASSW|PASSPHRASE|SECRET|TOKEN|CREDENTIAL|(ACCESS|API|PRIVATE)_?KEY", re.IGNORECASE
)
_PLACE_NAME = re.compile(r"_(FILE|PATH|DIR)$", re.IGNORECASE)
_URL_WITH_PASSWORD = re.compile(r"://[^/?#\s]*:[^/?#\s]*@")


def is_secret(name: str, value: str) -> bool:
    """Whether a variable holds a secret, by its name or as a URL with a password."""
    if _URL_WITH_PASSWORD.search(value):
        return True
    return bool(_SECRET_NAME.search(name)) and not _PLACE_NAME.search(name)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a process that needs no secret."""
    return {name: value for name, value in environment.items() if not is_secret(name, value)}
