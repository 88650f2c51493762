"""What cycles of a fault come to: a row of the table in docs/reliability.md."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.faults.checker import Report


@dataclass
class Tally:
    """The columns of the table, and what is wrong.

    Attributes:
        lost: acknowledged messages that are not there.
        phantom: messages that are there and were never sent, or were refused.
        explained: messages that are there, or were given, twice, by what explains it.
        recovered: seconds until a send was acknowledged again, or a store was open again.
        not_started: how often a broker ended at its start; what its store has is not counted.
    """

    cycles: int = 0
    acknowledged: int = 0
    lost: int = 0
    phantom: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: int = 0
    recovered: list[float] = field(default_factory=list)
    not_started: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, report: Report) -> None:
        """Count what the checker says of a history."""
        self.acknowledged += report.acknowledged
        self.lost += report.lost.total()
        self.phantom += report.phantom
        self.explained += report.explained
        self.unexplained += report.unexplained

    @property
    def more(self) -> str:
        """What a kind of run has besides, as words of its line."""
        return ""

    def __str__(self) -> str:
        return " ".join(
            [
                f"cycles={self.cycles} acknowledged={self.acknowledged} lost={self.lost}",
                f"phantom={self.phantom} duplicates_explained={self.explained.total()}",
                f"{dict(self.explained)} duplicates_unexplained={self.unexplained}",
                spread(self.recovered),
                *([f"not_started={self.not_started}"] if self.not_started else []),
                *([self.more] if self.more else []),
                f"wrong={self.wrong[:20]}",
            ]
        )


def spread(seconds: list[float]) -> str:
    """Return the words of how long recoveries took."""
    return " ".join(
        f"recovered_{name}={quantile(seconds, part):.3f}s"
        for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    )


def quantile(values: list[float], part: float) -> float:
    """Return the smallest value that a part of all is not above, 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0
