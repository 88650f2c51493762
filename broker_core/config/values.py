"""Values: converts between the text of a file or request and the value of a field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args

from broker_core.config import checks

if TYPE_CHECKING:
    from broker_core.config.keys import Key

HIDDEN = "******"
"""Shown instead of a secret."""


def parse_value(key: Key, text: str) -> Any:
    """Return the value of a key.

    Raises:
        ValueError: a description of valid values.
    """
    setting = key.setting
    if key.kind is bool:
        if text.casefold() not in ("true", "false"):
            raise ValueError("true or false")
        return text.casefold() == "true"
    if key.kind is int:
        if not re.fullmatch(r"[+-]?\d{1,19}", text) or not setting.low <= int(text) <= setting.high:
            unit = f" of {setting.unit}" if setting.unit else ""
            raise ValueError(f"a whole number{unit} from {setting.low} to {setting.high}")
        return int(text)
    if key.kind is not str:
        if text not in get_args(key.kind):
            raise ValueError(" or ".join(get_args(key.kind)))
        return text
    if setting.extensions_max:
        checks.extensions(key.name, setting.extensions_max, text)
    if setting.check is not None:
        setting.check(text)
    return text


def text_of(key: Key, value: object) -> str:
    """Return a value for display: as in the file, with secrets hidden."""
    if key.setting.is_secret and value:
        return HIDDEN
    return str(value).lower() if isinstance(value, bool) else str(value)
