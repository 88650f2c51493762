"""Judge: applies the rules to what the collector has kept, once a minute, and keeps what they say.

It looks at every broker, and at groups of which something was noticed within RECENT_MS: they lag,
went back, retried or gave up. After a start it looks at all of them once. What a rule no longer
says is kept for HELD_MS, so that a number at its threshold does not blink.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from console.history import metrics
from console.history.series import Line, values_of
from console.history.tiers import COARSE, DAY_MS, MIDDLE, MINUTE_MS
from console.verdicts.rules import RULES, Seen
from console.verdicts.window import MINUTES, Window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from console.history.metrics import Subject
    from console.history.store import HistoryStore

logger = logging.getLogger(__name__)

VERDICTS = "verdicts"
"""The note that holds them."""
EVERY_MS = MINUTE_MS
HELD_MS = 2 * MINUTE_MS + 30_000
RECENT_MS = 20 * MINUTE_MS
LOOKED_AT_MAX = 5_000
KEPT_MAX = 500
DISK_DAYS = 3
ORDER = {"bad": 0, "warn": 1}


class Verdict(msgspec.Struct, frozen=True):
    """What a rule says of a subject: since when, and the numbers that show it."""

    rule: str
    severity: str
    kind: str
    broker: str
    name: str
    since_ms: int
    seen_ms: int
    evidence: dict[str, float]

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.rule, self.kind, self.broker, self.name


class Verdicts(msgspec.Struct):
    """All of them by urgency, and when the judge looked."""

    at_ms: int
    verdicts: list[Verdict]


class Judge:
    """One thread only: the collector's."""

    def __init__(self, store: HistoryStore) -> None:
        self._store = store
        self._judged_ms = 0
        self._before: dict[tuple[str, str, str, str], Verdict] | None = None

    def judge(self, now_ms: int, noticed: Mapping[Subject, int]) -> None:
        """Look again if a minute has passed; `noticed` says when each subject was noticed last."""
        # A clock that was set back is no reason to wait for it.
        if 0 <= now_ms - self._judged_ms < EVERY_MS:
            return
        self._judged_ms = now_ms
        first = self._before is None
        before = self._kept() if self._before is None else self._before
        ids = self._store.all_subjects()
        looked_at = [
            subject
            for subject in ids
            if subject.kind == metrics.BROKER
            or (
                subject.kind in {metrics.GROUP, metrics.PROGRESS}
                and (first or now_ms - noticed.get(subject, 0) <= RECENT_MS)
            )
        ][:LOOKED_AT_MAX]
        now = {verdict.key: verdict for verdict in self._found(looked_at, ids, now_ms)}
        for key, verdict in before.items():
            if key in now:
                now[key] = msgspec.structs.replace(now[key], since_ms=verdict.since_ms)
            elif 0 <= now_ms - verdict.seen_ms < HELD_MS:
                now[key] = verdict
        self._before = now
        ordered = sorted(now.values(), key=lambda each: (ORDER[each.severity], each.since_ms))
        kept = Verdicts(now_ms, ordered[:KEPT_MAX])
        self._store.note(VERDICTS, msgspec.json.encode(kept))

    def _found(
        self, subjects: Sequence[Subject], ids: Mapping[Subject, int], now_ms: int
    ) -> list[Verdict]:
        groups = {
            subject.name: subject._replace(kind=metrics.GROUP, name=subject.name.partition("@")[0])
            for subject in subjects
            if subject.kind == metrics.PROGRESS
        }
        wanted = {*subjects, *groups.values()} & ids.keys()
        first = now_ms // MIDDLE.step_ms - MINUTES
        read = self._store.read([ids[each] for each in wanted], MIDDLE, first, MINUTES)
        windows = {each: Window(each, read[ids[each]], now_ms) for each in wanted}
        brokers = {each.broker: windows[each] for each in wanted if each.kind == metrics.BROKER}
        found = []
        for subject in subjects:
            seen = Seen(
                own=windows[subject],
                group=windows.get(groups[subject.name])
                if subject.kind == metrics.PROGRESS
                else None,
                broker=brokers.get(subject.broker),
                disk_used=self._disk_used(ids[subject], now_ms)
                if subject.kind == metrics.BROKER
                else None,
            )
            for rule in RULES:
                said = rule.judge(seen) if rule.kind == subject.kind else None
                if said is not None:
                    evidence = {name: float(value) for name, value in said.evidence.items()}
                    found.append(
                        Verdict(rule.name, said.severity, *subject, now_ms, now_ms, evidence)
                    )
        return found

    def _disk_used(self, number: int, now_ms: int) -> list[float | None]:
        slots = DISK_DAYS * DAY_MS // COARSE.step_ms
        first = now_ms // COARSE.step_ms - slots
        points = self._store.read([number], COARSE, first, slots)[number]
        return values_of([points], Line("", metrics.DISK_USED))

    def _kept(self) -> dict[tuple[str, str, str, str], Verdict]:
        """Return what the last collector said: a restart does not make troubles young."""
        return {verdict.key: verdict for verdict in verdicts_of(self._store).verdicts}


def verdicts_of(store: HistoryStore) -> Verdicts:
    """Return what the judge said last; at_ms 0: nothing yet."""
    data = store.noted(VERDICTS)
    if data is None:
        return Verdicts(0, [])
    try:
        return msgspec.json.decode(data, type=Verdicts)
    except msgspec.DecodeError as error:
        logger.warning("the verdicts cannot be read: %s", error)
        return Verdicts(0, [])
