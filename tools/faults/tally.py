"""The results of a fault's cycles: a row of the table in docs/reliability.md."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.faults.checker import Report


@dataclass
class Tally:
    """The columns of the table, and the failures.

    Attributes:
        lost: acknowledged messages that are missing.
        phantom: stored messages that were never sent, or were rejected.
        explained: messages stored or delivered twice, by explanation.
        recovered: seconds until a send was acknowledged again, or a store was open again.
        not_started: how often a broker exited during its start; its messages aren't counted.
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
        """Count the checker's findings for a history."""
        self.acknowledged += report.acknowledged
        self.lost += report.lost.total()
        self.phantom += report.phantom
        self.explained += report.explained
        self.unexplained += report.unexplained

    @property
    def more(self) -> str:
        """Return the extra text of a kind of run for its line."""
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
    """Return the distribution of recovery times as text."""
    return " ".join(
        f"recovered_{name}={quantile(seconds, part):.3f}s"
        for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    )


def quantile(values: list[float], part: float) -> float:
    """Return a quantile of the values, or 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0
