"""A line of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: the task, its cost, and the target."""

    work: str
    found: str
    target: str
    is_reached: bool | None

    def line(self) -> str:
        sign = {True: "yes", False: "no", None: "-"}[self.is_reached]
        return f"{self.work:<52} {self.found:>32}   {self.target:<24} {sign}"
