"""Judge: applies the rules to the collector's data once a minute, and stores the verdicts.

It checks all brokers, subjects with a verdict, and groups and topics with an event in the last
RECENT_MS: lag, rewinds, retries, dead letters or anomalies. After a start it checks all of them
once. A verdict that its rule no longer reaches continues while the problem gets worse
(`Rule.persists`), and then for HELD_MS, so that a number at its threshold doesn't flicker.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from broker_core.isolation import isolated
from console.gateway.answers import MASTER_ID
from console.observe.history import metrics
from console.observe.history.metrics import Subject
from console.observe.history.series import Line, values_of
from console.observe.history.tiers import COARSE, DAY_MS, MIDDLE, MINUTE_MS
from console.observe.verdicts.rules import BY_NAME, RULES, RuleInput
from console.observe.verdicts.window import MINUTES, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from console.observe.history.series import Values
    from console.observe.history.store import HistoryStore
    from console.observe.verdicts.rules import Evidence, Finding, Rule

    Key = tuple[str, str, str, str]

logger = logging.getLogger(__name__)

VERDICTS = "verdicts"
"""The note with the verdicts."""
EVERY_MS = MINUTE_MS
HELD_MS = 2 * MINUTE_MS + 30_000
RECENT_MS = 20 * MINUTE_MS
LOOKED_AT_MAX = 5_000
KEPT_MAX = 500
DISK_DAYS = 3
ORDER = {"bad": 0, "warn": 1}
JUDGED = {metrics.GROUP, metrics.PROGRESS, metrics.TOPIC}
"""Kinds that are only checked after an event; brokers are always checked."""
RULES_OF = {
    kind: [rule for rule in RULES if rule.kind == kind] for kind in (*JUDGED, metrics.BROKER)
}


class Verdict(msgspec.Struct, frozen=True):
    """A rule's verdict on a subject: since when, and the numbers that show it."""

    rule: str
    severity: str
    kind: str
    broker: str
    name: str
    since_ms: int
    seen_ms: int
    evidence: dict[str, float]
    names: dict[str, str] = {}
    """Evidence besides numbers: a client, a key, the offset of a message."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.rule, self.kind, self.broker, self.name


class Verdicts(msgspec.Struct):
    """All verdicts by urgency, and when they were computed."""

    at_ms: int
    verdicts: list[Verdict]


class Judge:
    """Used by one thread only: the collector's."""

    def __init__(self, store: HistoryStore) -> None:
        self._store = store
        self._judged_ms = 0
        self._before: dict[Key, Verdict] | None = None

    def judge(
        self,
        now_ms: int,
        noticed: Mapping[Subject, int],
        facts: Callable[[Subject], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """Check again if a minute has passed.

        `noticed` is the time of each subject's last event, `facts` its facts as text.
        """
        # If the clock was set back, don't wait for it to catch up.
        if 0 <= now_ms - self._judged_ms < EVERY_MS:
            return
        self._judged_ms = now_ms
        first = self._before is None
        before = self._kept() if self._before is None else self._before
        ids = self._store.all_subjects()
        standing = {Subject(*key[1:]) for key in before}
        looked_at = [
            subject
            for subject in ids
            if subject.kind == metrics.BROKER
            or subject in standing
            or (subject.kind in JUDGED and (first or now_ms - noticed.get(subject, 0) <= RECENT_MS))
        ]
        # Many subjects must not crowd out a broker, or the end of an existing verdict.
        looked_at.sort(key=lambda each: each.kind != metrics.BROKER and each not in standing)
        now = self._found(looked_at[:LOOKED_AT_MAX], ids, before, now_ms)
        for key, verdict in now.items():
            names: dict[str, str] = {}
            with isolated("reading the facts of a verdict", key):
                names = names_of(verdict, facts(Subject(*key[1:])))
            was = before.get(key)
            now[key] = msgspec.structs.replace(
                verdict,
                since_ms=verdict.since_ms if was is None else was.since_ms,
                names=names if names or was is None else was.names,
            )
        for key, verdict in before.items():
            if key not in now and 0 <= now_ms - verdict.seen_ms < HELD_MS:
                now[key] = verdict
        self._before = now
        ordered = sorted(now.values(), key=lambda each: (ORDER[each.severity], each.since_ms))
        kept = Verdicts(now_ms, ordered[:KEPT_MAX])
        self._store.note(VERDICTS, msgspec.json.encode(kept))

    def _found(
        self,
        subjects: Sequence[Subject],
        ids: Mapping[Subject, int],
        before: Mapping[Key, Verdict],
        now_ms: int,
    ) -> dict[Key, Verdict]:
        groups = {each: group_of(each) for each in subjects if each.kind == metrics.PROGRESS}
        masters = {
            each.broker: Subject(metrics.BROKER, each.broker, str(MASTER_ID)) for each in subjects
        }
        wanted = {*subjects, *groups.values(), *masters.values()} & ids.keys()
        first = now_ms // MIDDLE.step_ms - MINUTES
        read = self._store.read([ids[each] for each in wanted], MIDDLE, first, MINUTES)
        windows = {each: Window(each, read[ids[each]], now_ms) for each in wanted}
        found: dict[Key, Verdict] = {}
        for subject in subjects:
            seen = RuleInput(
                own=windows[subject],
                group=windows.get(groups[subject]) if subject in groups else None,
                broker=windows.get(masters[subject.broker]),
                disk_used=disk_used(self._store, ids[subject], now_ms)
                if subject.kind == metrics.BROKER
                else None,
            )
            standing = {
                rule.name: was.evidence
                for rule in RULES
                if (was := before.get((rule.name, *subject))) is not None
            }
            for name, findings in verdicts_on(RULES_OF[subject.kind], seen, standing).items():
                with isolated("storing the evidence of a verdict", (name, *subject)):
                    evidence = {key: float(value) for key, value in findings.evidence.items()}
                    found[name, *subject] = Verdict(
                        name, findings.severity, *subject, now_ms, now_ms, evidence
                    )
        return found

    def _kept(self) -> dict[Key, Verdict]:
        """Return the last collector's verdicts, so that a restart doesn't reset their age."""
        return {verdict.key: verdict for verdict in verdicts_of(self._store).verdicts}


def group_of(progress: Subject) -> Subject:
    """Return the group on the same broker; groups with this name elsewhere may be unrelated."""
    return progress._replace(kind=metrics.GROUP, name=progress.name.partition("@")[0])


def verdicts_on(
    rules: Iterable[Rule], seen: RuleInput, standing: Mapping[str, Evidence]
) -> dict[str, Finding]:
    """Return the verdicts on a subject; `standing` has the evidence of its earlier verdicts."""
    findings = {}
    for rule in rules:
        with isolated("applying a rule to the history", (rule.name, seen.own.subject)):
            found = rule.judge(seen)
            if found is None and rule.persists is not None and rule.name in standing:
                found = rule.persists(seen, standing[rule.name])
            if found is not None:
                findings[rule.name] = found
    if "stopped" in findings:
        # Both apply to a group that stopped over an hour ago; report the more severe one.
        findings.pop("stalled", None)
    return findings


def disk_used(store: HistoryStore, number: int, now_ms: int, days: int = 0) -> Values:
    """Return a broker's disk use in ten-minute steps, over DISK_DAYS and `days`."""
    slots = (DISK_DAYS + days) * DAY_MS // COARSE.step_ms
    first = now_ms // COARSE.step_ms - slots
    return values_of(
        [store.read([number], COARSE, first, slots)[number]], Line("", metrics.DISK_USED)
    )


def names_of(verdict: Verdict, facts: Mapping[str, str]) -> dict[str, str]:
    """Return the facts that a verdict's rule wants; a message only if it is in the same queue."""
    queue = facts.get("head_queue")
    if queue is not None and float(queue) != verdict.evidence.get("queue"):
        return {}
    return {name: facts[name] for name in BY_NAME[verdict.rule].names if name in facts}


def verdicts_of(store: HistoryStore) -> Verdicts:
    """Return the latest verdicts; at_ms is 0 before the first check."""
    data = store.noted(VERDICTS)
    if data is None:
        return Verdicts(0, [])
    try:
        return msgspec.json.decode(data, type=Verdicts)
    except msgspec.DecodeError as error:
        logger.warning("verdicts unreadable error=%s", error)
        return Verdicts(0, [])
