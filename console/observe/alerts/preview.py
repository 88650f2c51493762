"""Previews how often a rule would have fired in the last 24 hours, from the history."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from console.gateway.answers import MASTER_ID
from console.observe.alerts.life import Life, Sign, Stage, step
from console.observe.alerts.models import Rule
from console.observe.alerts.observing import MISSING_SLOTS, QUERY, matches_rule, sign_of, terms_of
from console.observe.alerts.queries import queries
from console.observe.alerts.series import SERIES
from console.observe.history import metrics
from console.observe.history.metrics import Subject
from console.observe.history.points import Points
from console.observe.history.series import values_of
from console.observe.history.tiers import COARSE, DAY_MS, MIDDLE, MINUTE_MS
from console.observe.verdicts.judge import DISK_DAYS, RULES_OF, disk_used, group_of, verdicts_on
from console.observe.verdicts.rules import RULES, RuleInput, Severity
from console.observe.verdicts.window import MINUTES, Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from console.observe.history.series import Values
    from console.observe.history.store import HistoryStore
    from console.observe.verdicts.rules import Evidence

SLOTS = DAY_MS // MINUTE_MS
SUBJECTS_MAX = 300
VERDICT_EVERY = 5
"""Minutes between evaluations of issues, which cost a thousand times as much as thresholds."""
SECONDS_MAX = 2.5


class Fired(NamedTuple):
    """An alert that would have fired; `ended_ms` is None if it would still fire."""

    subject: Subject
    fired_ms: int
    ended_ms: int | None


class Preview(NamedTuple):
    """The alerts, newest first; `looked_at` of `subjects` were evaluated."""

    fired: list[Fired]
    looked_at: int
    subjects: int


def preview(store: HistoryStore, rule: Rule, now_ms: int) -> Preview:
    """Replay the last day; stops after SECONDS_MAX or SUBJECTS_MAX subjects."""
    if rule.source == Rule.Source.QUERY:
        return of_runs(rule, now_ms)
    kinds = kinds_of(rule)
    ids = {
        subject: number
        for subject, number in store.all_subjects().items()
        if subject.kind in kinds and matches_rule(rule, subject)
    }
    until = time.monotonic() + SECONDS_MAX
    first = now_ms // MINUTE_MS - SLOTS
    fired: list[Fired] = []
    looked_at = 0
    for subject in list(ids)[:SUBJECTS_MAX]:
        if time.monotonic() > until:
            break
        looked_at += 1
        fired += of_subject(store, rule, subject, ids[subject], first)
    return Preview(sorted(fired, key=lambda each: -each.fired_ms), looked_at, len(ids))


def of_runs(rule: Rule, now_ms: int) -> Preview:
    """Replay a query's runs; the result of each holds until the next run has ended."""
    first = now_ms // MINUTE_MS - SLOTS
    query = rule.query
    if query is None:
        return Preview([], 0, 0)
    signs = [Sign.UNKNOWN] * SLOTS
    for run in queries().completed_since(query, first * MINUTE_MS):
        at = max(0, (run.ended_ms or 0) // MINUTE_MS - first)
        signs[at:] = [Sign.HOLDS if run.rows else Sign.CLEAR] * len(signs[at:])
    found = list(lives(rule, Subject(QUERY, "", query.name), signs, first, 1))
    return Preview(sorted(found, key=lambda each: -each.fired_ms), 1, 1)


def kinds_of(rule: Rule) -> set[str]:
    if rule.source == Rule.Source.THRESHOLD:
        return {SERIES[rule.series].kind} if rule.series in SERIES else set()
    return {each.kind for each in RULES if not rule.verdicts or each.name in rule.verdicts}


def of_subject(
    store: HistoryStore, rule: Rule, subject: Subject, number: int, first: int
) -> Iterator[Fired]:
    low = first - MISSING_SLOTS
    points = store.read([number], MIDDLE, low, SLOTS + MISSING_SLOTS)[number]
    if rule.source == Rule.Source.THRESHOLD:
        values = values_of([points], SERIES[rule.series].line.line)
        signs = [
            sign_of(rule, values[max(0, index + 1 - MISSING_SLOTS) : index + 1])
            for index in range(MISSING_SLOTS, len(values))
        ]
        yield from lives(rule, subject, signs, first, 1)
        return
    for signs in verdict_signs(store, rule, subject, number, points):
        yield from lives(rule, subject, signs, first, VERDICT_EVERY)


def verdict_signs(
    store: HistoryStore, rule: Rule, subject: Subject, number: int, points: Points
) -> Iterator[list[Sign]]:
    """Yield the state of each issue that the rule covers, every VERDICT_EVERY minutes.

    Issues that were present before persist as long as the judge keeps them.
    """
    wanted = {
        each.name
        for each in RULES_OF[subject.kind]
        if not rule.verdicts or each.name in rule.verdicts
    }
    # The judge suppresses one of them where the other applies.
    judged = wanted | ({"stopped"} if "stalled" in wanted else set())
    rules = [each for each in RULES_OF[subject.kind] if each.name in judged]
    others = companions(store, subject, points.first)
    disk = Disk(store, number, points) if subject.kind == metrics.BROKER else None
    signs: dict[str, list[Sign]] = {name: [] for name in wanted}
    standing: dict[str, Evidence] = {}
    for index in range(0, SLOTS, VERDICT_EVERY):
        now_ms = (points.first + MISSING_SLOTS + index) * MINUTE_MS
        windows = {
            kind: Window(subject, slots_of(each, index, MINUTES), now_ms)
            for kind, each in others.items()
        }
        seen = RuleInput(
            Window(subject, slots_of(points, index, MINUTES), now_ms),
            windows.get(metrics.GROUP),
            windows.get(metrics.BROKER),
            None if disk is None else disk.until(now_ms),
        )
        verdicts = verdicts_on(rules, seen, standing)
        standing = {name: found.evidence for name, found in verdicts.items()}
        for name in wanted:
            is_it = name in verdicts and (
                rule.least != Rule.Severity.BAD or verdicts[name].severity is Severity.BAD
            )
            signs[name].append(Sign.HOLDS if is_it else Sign.CLEAR)
    yield from signs.values()


class Disk:
    """A broker's disk usage before each minute of the replayed day."""

    def __init__(self, store: HistoryStore, number: int, points: Points) -> None:
        end_ms = (points.first + points.slots) * MINUTE_MS
        self._end = end_ms // COARSE.step_ms
        self._values = disk_used(store, number, end_ms, days=1)

    def until(self, now_ms: int) -> Values:
        end = len(self._values) - (self._end - now_ms // COARSE.step_ms)
        return self._values[end - DISK_DAYS * DAY_MS // COARSE.step_ms : end]


def companions(store: HistoryStore, subject: Subject, low: int) -> dict[str, Points]:
    """Return the subjects that a rule needs besides its own: the group and the broker."""
    if subject.kind == metrics.BROKER:
        return {}
    wanted = {metrics.BROKER: Subject(metrics.BROKER, subject.broker, str(MASTER_ID))}
    if subject.kind == metrics.PROGRESS:
        wanted[metrics.GROUP] = group_of(subject)
    ids = store.all_subjects()
    known = {kind: ids[each] for kind, each in wanted.items() if each in ids}
    read = store.read(list(known.values()), MIDDLE, low, SLOTS + MISSING_SLOTS)
    return {kind: read[number] for kind, number in known.items()}


def slots_of(points: Points, low: int, count: int) -> Points:
    """Return a slice of the slots that shares their values."""
    return Points(points.first + low, points.columns, points.table[:, :, low : low + count])


def lives(
    rule: Rule, subject: Subject, signs: Sequence[Sign], first: int, every: int
) -> Iterable[Fired]:
    """Yield the alerts for a series of signs, one every `every` minutes from `first`."""
    terms = terms_of(rule)
    life: Life | None = None
    fired_ms: int | None = None
    for index, sign in enumerate(signs):
        at = (first + index * every) * MINUTE_MS
        life = step(life, sign, every * MINUTE_MS, terms)
        if life is None:
            fired_ms = None
        elif life.stage is Stage.FIRING and fired_ms is None:
            fired_ms = at
        elif life.stage is Stage.RESOLVED:
            if fired_ms is not None:
                yield Fired(subject, fired_ms, at)
            life, fired_ms = None, None
    if fired_ms is not None:
        yield Fired(subject, fired_ms, None)
