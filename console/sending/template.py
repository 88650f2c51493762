"""Placeholders in what is sent: `${n}`, `${uuid}` and `${now}` differ from message to message."""

from __future__ import annotations

import re
import uuid

from console.gateway.moment import now_ms

PLACEHOLDER = re.compile(r"\$\{(n|uuid|now)\}")


def filled(text: str, number: int) -> str:
    """Return a text with its placeholders filled for the message of a number, from 1 on.

    Other dollars and braces stay: bodies are full of them.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] == "n":
            return str(number)
        return str(uuid.uuid4()) if found[1] == "uuid" else str(now_ms())

    return PLACEHOLDER.sub(value, text)
