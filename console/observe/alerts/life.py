r"""The life cycle of an alert, as a pure function of signs and elapsed time.

    nothing -> pending -> firing -> resolved
              \-> nothing

Between the level where it fires and the level where it clears, an alert keeps its state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

MINUTE_MS = 60_000
PENDING_UNKNOWN_MS_MAX = 15 * MINUTE_MS
UNKNOWN_MS_MAX = 60 * MINUTE_MS
"""A firing alert whose state stays unknown ends after this time, with the reason `unknown`."""
MISSING_MS_MAX = 24 * 60 * MINUTE_MS
"""The same for rules that fire on missing data: after a day the subject counts as removed."""


class Sign(Enum):
    """The observation of a subject in one round."""

    HOLDS = "holds"
    BETWEEN = "between"
    CLEAR = "clear"
    UNKNOWN = "unknown"


class Stage(Enum):
    """The stage of an alert."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class EndReason(Enum):
    """The reason why an alert ended."""

    CLEAR = "clear"
    UNKNOWN = "unknown"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a condition must hold, or be clear."""

    for_ms: int
    clear_ms: int
    unknown_ms_max: int = UNKNOWN_MS_MAX


@dataclass(frozen=True, slots=True)
class Life:
    """`held_ms` is the time since the first sign, `clear_ms` since it cleared (-1: not clear)."""

    stage: Stage
    held_ms: int = 0
    clear_ms: int = -1
    unknown_ms: int = 0
    reason: EndReason | None = None


def step(life: Life | None, sign: Sign, passed_ms: int, terms: Terms) -> Life | None:
    """Return the state after one more round, or None if there is no alert."""
    if life is None:
        if sign is not Sign.HOLDS:
            return None
        return Life(Stage.PENDING if terms.for_ms else Stage.FIRING)
    match life.stage:
        case Stage.PENDING:
            return _pending(life, sign, passed_ms, terms)
        case Stage.FIRING:
            return _firing(life, sign, passed_ms, terms)
        case Stage.RESOLVED:
            return life


def _pending(life: Life, sign: Sign, passed_ms: int, terms: Terms) -> Life | None:
    if sign is Sign.UNKNOWN:
        unknown = life.unknown_ms + passed_ms
        return replace(life, unknown_ms=unknown) if unknown < PENDING_UNKNOWN_MS_MAX else None
    if sign is not Sign.HOLDS:
        return None
    held = life.held_ms + passed_ms
    stage = Stage.FIRING if held >= terms.for_ms else Stage.PENDING
    return replace(life, stage=stage, held_ms=held, unknown_ms=0)


def _firing(life: Life, sign: Sign, passed_ms: int, terms: Terms) -> Life:
    if sign is Sign.UNKNOWN:
        unknown = life.unknown_ms + passed_ms
        if unknown < terms.unknown_ms_max:
            return replace(life, unknown_ms=unknown)
        return replace(life, stage=Stage.RESOLVED, unknown_ms=unknown, reason=EndReason.UNKNOWN)
    if sign is not Sign.CLEAR:
        return replace(life, clear_ms=-1, unknown_ms=0)
    clear = 0 if life.clear_ms < 0 else life.clear_ms + passed_ms
    if clear < terms.clear_ms:
        return replace(life, clear_ms=clear, unknown_ms=0)
    return replace(life, stage=Stage.RESOLVED, clear_ms=clear, unknown_ms=0, reason=EndReason.CLEAR)
