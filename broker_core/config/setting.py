"""Setting: the metadata of a key, attached to its field."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LONG_MAX = (1 << 63) - 1
METADATA_KEY = "setting"
MILLISECONDS = "milliseconds"
SECONDS = "seconds"
HOURS = "hours"
BYTES = "bytes"
PAGES = "pages"
PERCENT = "percent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The properties of a key except its type and default, which belong to the field."""

    key: str = ""
    """Empty: the field's name in camelCase."""
    aliases: tuple[str, ...] = ()
    """Other spellings, which are read but never printed."""
    low: int = 0
    high: int = LONG_MAX
    unit: str = ""
    check: Callable[[str], None] | None = None
    """Raises ValueError with a description of valid values if a text is invalid."""
    extensions_max: int = 0
    """How many extensions a key may name; 0 if it doesn't name extensions."""
    is_live: bool = False
    """Whether it may change while the broker runs, with immediate effect. Never a path."""
    is_important: bool = False
    """Whether `-m` prints it."""
    is_secret: bool = False
    """Whether its value is always hidden."""
    has_effect: bool = True
    """False for a key that is read and checked but has no effect; the start logs a warning."""


PLAIN = Setting()


def setting(  # noqa: PLR0913  each is a keyword
    default: T,
    *,
    key: str = "",
    aliases: tuple[str, ...] = (),
    low: int = 0,
    high: int = LONG_MAX,
    unit: str = "",
    check: Callable[[str], None] | None = None,
    extensions_max: int = 0,
    live: bool = False,
    important: bool = False,
    secret: bool = False,
    has_effect: bool = True,
) -> T:
    """Return a dataclass field with its Setting; see there."""
    described = Setting(
        key=key,
        aliases=aliases,
        low=low,
        high=high,
        unit=unit,
        check=check,
        extensions_max=extensions_max,
        is_live=live,
        is_important=important,
        is_secret=secret,
        has_effect=has_effect,
    )
    return field(default=default, repr=not secret, metadata={METADATA_KEY: described})
