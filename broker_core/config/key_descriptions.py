"""Key descriptions: each key with its current value, default and limits, for display."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypedDict, get_args

from broker_core.config.keys import SECTIONS
from broker_core.config.update import is_live
from broker_core.config.values import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_core.config.configuration import Configuration
    from broker_core.config.keys import Key


class DescribedKey(TypedDict):
    """A key. `default` is None for a key without a default; `choices` lists the valid values, if
    fixed.
    """

    key: str
    value: str
    default: str | None
    live: bool
    kind: str
    unit: str
    low: int
    high: int
    choices: list[str]
    secret: bool
    effective: bool


def describe_keys(configuration: Configuration) -> Iterator[DescribedKey]:
    """Yield the keys of all sections with their values as text, secrets hidden."""
    for section in configuration.sections():
        defaults = {one.name: one.default for one in fields(section)}
        for key in SECTIONS[type(section)]:
            default = defaults[key.attribute]
            yield DescribedKey(
                key=key.name,
                value=text_of(key, getattr(section, key.attribute)),
                default=None if default is MISSING else text_of(key, default),
                live=is_live(key.name),
                kind=_kind_of(key),
                unit=key.setting.unit,
                low=key.setting.low,
                high=key.setting.high,
                choices=_choices_of(key),
                secret=key.setting.is_secret,
                effective=key.setting.has_effect,
            )


def _kind_of(key: Key) -> str:
    if key.kind is bool or key.kind is int:
        return str(key.kind.__name__)
    return "text"


def _choices_of(key: Key) -> list[str]:
    if key.kind is bool:
        return ["true", "false"]
    choices: tuple[Any, ...] = () if key.kind in (int, str) else get_args(key.kind)
    return [str(each) for each in choices]
