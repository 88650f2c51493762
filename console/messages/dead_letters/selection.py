"""A selection of dead letters: checked ones, those with a topic and tag, or all shown.

The preview's query string holds the selection, so that it can be opened again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.http import QueryDict

from console.messages.dead_letters.reading import DeadLetter, Letters, matching, read_letters

if TYPE_CHECKING:
    from collections.abc import Sequence

TICKED_MAX = 500
ANY = "*"


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection in a query string; if `ticked` is empty, by topic and tag (None is any)."""

    ticked: tuple[str, ...] = ()
    topic: str | None = None
    tag: str | None = None
    before: int | None = None

    @classmethod
    def of(cls, asked: QueryDict) -> Selection:
        before = asked.get("before", "")
        return cls(
            tuple(asked.getlist("m")[:TICKED_MAX]),
            text_of(asked, "topic"),
            text_of(asked, "tag"),
            int(before) if before.isdecimal() and len(before) < 19 else None,
        )

    @property
    def query(self) -> str:
        fields = QueryDict(mutable=True)
        fields.setlist("m", list(self.ticked))
        for name, value in (("topic", self.topic), ("tag", self.tag)):
            if value is not None:
                fields[name] = value or ANY
        if self.before is not None:
            fields["before"] = str(self.before)
        return fields.urlencode()

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The selection as hidden fields of a form."""
        return [(key, value) for key, values in QueryDict(self.query).lists() for value in values]

    def read(self, group: str) -> Letters:
        return read_letters(group, self.before)

    def among(self, letters: Sequence[DeadLetter]) -> tuple[DeadLetter, ...]:
        if self.ticked:
            wanted = frozenset(self.ticked)
            return tuple(each for each in letters if each.key in wanted)
        return matching(letters, self.topic, self.tag)


def text_of(asked: QueryDict, name: str) -> str | None:
    """Return a filter's value: an asterisk means no value, None means any."""
    value = asked.get(name, "")[:255]
    if not value:
        return None
    return "" if value == ANY else value
