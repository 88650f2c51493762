"""Placeholders in messages: `${n}`, `${uuid}` and `${now}` differ from message to message."""

from __future__ import annotations

import re
import uuid

from console.lib.moment import now_ms

PLACEHOLDER = re.compile(r"\$\{(n|uuid|now)\}")


def filled(text: str, number: int) -> str:
    """Return a text with its placeholders filled for message number n, starting at 1.

    Other dollars and braces are left alone, since they are common in bodies.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] == "n":
            return str(number)
        return str(uuid.uuid4()) if found[1] == "uuid" else str(now_ms())

    return PLACEHOLDER.sub(value, text)
