"""The options of a source, with their types; every refusal is one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.errors import ReportError
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TRUTHS = {"true": True, "false": False}


class Options:
    """What was given to a source, by the names that it knows; Spark does not keep their case."""

    def __init__(
        self,
        source: str,
        known: Sequence[str],
        given: Mapping[str, str],
        *,
        of_spark: Sequence[str] = (),
    ) -> None:
        """Take what was given; `of_spark` are options that Spark hands on and obeys itself.

        Raises:
            ReportError: the source has no such option.
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
        """Return a whole number, None when it was not given."""
        text = self._given.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise self.refused(name, f"a whole number from {least} on")
        return int(text)

    def truth(self, name: str, *, default: bool) -> bool:
        text = self._given.get(name)
        if text is None:
            return default
        if text.lower() not in _TRUTHS:
            raise self.refused(name, "true or false")
        return _TRUTHS[text.lower()]

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        """Return one of the words, the first of them when none was given."""
        text = self._given.get(name, choices[0]).lower()
        if text not in choices:
            raise self.refused(name, f"{', '.join(choices[:-1])} or {choices[-1]}")
        return text

    def topics(self, name: str) -> frozenset[str] | None:
        """Return the topics of a list with commas, None when it was not given."""
        text = self._given.get(name)
        if text is None:
            return None
        found = frozenset(topic for part in text.split(",") if (topic := part.strip()))
        for topic in found:
            wrong = names.check_topic(topic)
            if wrong is not None:
                raise self.refused(name, f"topics with commas between them: {wrong}")
        if not found:
            raise self.refused(name, "topics with commas between them")
        return found

    def refused(self, name: str, wanted: str) -> ReportError:
        """Return the error that says what an option must be."""
        return ReportError(
            f"{self._source}'s option {name} is {self._given.get(name)!r}; "
            f"it must be {wanted.rstrip('.')}."
        )
