"""Issues: what the overview's banner says and its list shows, from one source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from console.observe.overview.states import Finding, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.observe.verdicts.words import Shown

WHOLE = 1
UNFOLDED = 4
LISTED_MAX = 50
URGENCY = {State.BAD: 0, State.WARN: 1}


@dataclass(frozen=True, slots=True)
class Issues:
    """Current readings that aren't good and the rules' verdicts, most urgent first.

    If `is_judged` is False, the rules haven't run yet, so an empty list doesn't mean that there
    are no issues.
    """

    entries: tuple[Finding | Shown, ...]
    is_judged: bool

    @classmethod
    def of(
        cls, findings: Iterable[Finding], verdicts: Iterable[Shown], *, is_judged: bool
    ) -> Issues:
        # All viewers share a summary, but only people who can see the topic's messages may see
        # keys; the pages of the subjects name them.
        found: list[Finding | Shown] = [*findings, *(replace(each, detail="") for each in verdicts)]
        return cls(tuple(sorted(found, key=lambda each: URGENCY[State(each.state)])), is_judged)

    @property
    def worst(self) -> State:
        return State(self.entries[0].state) if self.entries else State.OK

    @property
    def count(self) -> int:
        return len(self.entries)

    @property
    def first(self) -> tuple[Finding | Shown, ...]:
        return self.entries[:WHOLE]

    @property
    def brief(self) -> tuple[Finding | Shown, ...]:
        return self.entries[WHOLE:UNFOLDED]

    @property
    def folded(self) -> tuple[Finding | Shown, ...]:
        return self.entries[UNFOLDED:LISTED_MAX]

    @property
    def more(self) -> int:
        return max(0, self.count - UNFOLDED)

    @property
    def unlisted(self) -> int:
        return max(0, self.count - LISTED_MAX)
