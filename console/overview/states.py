"""States of health, and findings: the reasons for them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Health, from best to worst."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why the verdict is not good."""

    state: State
    text: str
