"""The typed options of a source; every error is one sentence."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

from analytics.errors import ReportError
from analytics.schemas import DAMAGE_COLUMN
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import StructType

_TRUTHS = {"true": True, "false": False}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(rf"([0-9]{{1,9}})\s*({'|'.join(_SECONDS)})?")


class Mode(enum.Enum):
    """How to handle damage; named as in Spark's own sources."""

    FAILFAST = "FAILFAST"
    """Reading fails."""
    PERMISSIVE = "PERMISSIVE"
    """The range is skipped and logged, and is a row if the schema has the column `damage`."""


def mode_for(given: Mode | None, schema: StructType) -> Mode:
    """Return the mode; by default, damage is an error unless the schema has a column for it."""
    if given is not None:
        return given
    return Mode.PERMISSIVE if DAMAGE_COLUMN in schema.names else Mode.FAILFAST


class Options:
    """The options given to a source, by name; Spark doesn't preserve their case."""

    def __init__(
        self,
        source: str,
        known: Sequence[str],
        given: Mapping[str, str],
        *,
        of_spark: Sequence[str] = (),
    ) -> None:
        """Check the given options; `of_spark` are options that Spark passes on and handles itself.

        Raises:
            ReportError: the source doesn't have an option with this name.
        """
        by_lower = {name.lower(): name for name in known}
        ignored = {name.lower() for name in of_spark}
        self._source = source
        self._given: dict[str, str] = {}
        for key, value in given.items():
            if key.lower() in ignored:
                continue
            if key.lower() not in by_lower:
                raise ReportError(
                    f"{source} has no option {key}; its options are {', '.join(known)}."
                )
            self._given[by_lower[key.lower()]] = value

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def text(self, name: str, default: str = "") -> str:
        return self._given.get(name, default)

    def number(self, name: str, *, least: int = 0) -> int | None:
        """Return an integer option, or None."""
        text = self._given.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise self.refused(name, f"a whole number of at least {least}")
        return int(text)

    def number_or(self, name: str, default: int, *, least: int = 0) -> int:
        """Return an integer option, or the default."""
        found = self.number(name, least=least)
        return default if found is None else found

    def seconds(self, name: str, default: float) -> float:
        """Return a duration in Spark's format: `90s`, `15m`, `2h`, `500ms`; ms without a unit."""
        text = self._given.get(name)
        if text is None:
            return default
        found = _DURATION.fullmatch(text.strip().lower())
        if found is None:
            raise self.refused(name, "a duration such as 90s, 15m or 2h")
        return int(found[1]) * _SECONDS[found[2] or "ms"]

    def truth(self, name: str, *, default: bool) -> bool:
        text = self._given.get(name)
        if text is None:
            return default
        if text.lower() not in _TRUTHS:
            raise self.refused(name, "true or false")
        return _TRUTHS[text.lower()]

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        """Return one of the words; the first is the default."""
        text = self._given.get(name, choices[0]).lower()
        if text not in choices:
            raise self.refused(name, f"{', '.join(choices[:-1])} or {choices[-1]}")
        return text

    def mode(self) -> Mode | None:
        """Return the option `mode`, or None."""
        text = self._given.get("mode")
        if text is None:
            return None
        if text.upper() not in Mode.__members__:
            raise self.refused("mode", " or ".join(Mode.__members__))
        return Mode[text.upper()]

    def topics(self, name: str) -> frozenset[str] | None:
        """Return the topics of a comma-separated option, or None."""
        text = self._given.get(name)
        if text is None:
            return None
        found = frozenset(topic for part in text.split(",") if (topic := part.strip()))
        for topic in found:
            wrong = names.check_topic(topic)
            if wrong is not None:
                raise self.refused(name, f"topics separated by commas: {wrong}")
        if not found:
            raise self.refused(name, "topics separated by commas")
        return found

    def refused(self, name: str, wanted: str) -> ReportError:
        """Return the error that says which values an option allows."""
        return ReportError(
            f"{self._source}'s option {name} is {self._given.get(name)!r}; "
            f"it must be {wanted.rstrip('.')}."
        )
