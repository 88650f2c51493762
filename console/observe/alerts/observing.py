"""Reads the state of all rules' subjects from the history and the issues, once per round."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from console.observe.alerts.life import MISSING_MS_MAX, UNKNOWN_MS_MAX, Sign, Terms
from console.observe.alerts.models import Rule
from console.observe.alerts.queries import queries
from console.observe.alerts.series import SERIES
from console.observe.alerts.windows import is_about
from console.observe.history.metrics import BROKER, Subject
from console.observe.history.series import values_of
from console.observe.history.tiers import MIDDLE, MINUTE_MS
from console.observe.verdicts.judge import verdicts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from console.observe.history.points import Points
    from console.observe.history.series import Values
    from console.observe.history.store import HistoryStore
    from console.observe.verdicts.judge import Verdict

MISSING_SLOTS = 60
"""A metric counts as missing if it had a value within this many minutes but has no value now."""
MISSING_MINUTES_MAX = 45
QUERY = "query"
FRESH_MS = 3 * MINUTE_MS
PAGES_ONLY = frozenset({"key"})
LOOKED_AT_MAX = 20_000
"""The number of metrics read per round for all rules: half a second of CPU time."""


class Key(NamedTuple):
    """Identifies an alert within a rule."""

    what: str
    subject: Subject


class SubjectState(NamedTuple):
    """The observation of one subject, with its severity and the values that show it."""

    sign: Sign
    severity: str
    evidence: dict[str, float | str]


def terms_of(rule: Rule) -> Terms:
    is_missing = rule.source == Rule.Source.THRESHOLD and rule.compare == Rule.Compare.MISSING
    return Terms(
        rule.for_minutes * MINUTE_MS,
        rule.clear_minutes * MINUTE_MS,
        MISSING_MS_MAX if is_missing else UNKNOWN_MS_MAX,
    )


def matches_rule(rule: Rule, subject: Subject) -> bool:
    """Return whether a rule's patterns match a subject; a broker matches by its name."""
    name = subject.broker if subject.kind == BROKER else subject.name
    return is_about(rule.broker_pattern, rule.name_pattern, subject.broker, name)


def concerns(rule: Rule, key: Key) -> bool:
    """Return whether an alert still matches its rule after the rule was changed."""
    if rule.source == Rule.Source.QUERY:
        return key.what == what_of(rule)
    if rule.source == Rule.Source.VERDICT:
        is_its = not rule.verdicts or key.what in rule.verdicts
    else:
        is_its = key.what == rule.series
    return is_its and matches_rule(rule, key.subject)


def sign_of(rule: Rule, values: Values) -> Sign:
    """Return the sign from the last minutes' values; between the two levels, it doesn't change."""
    value = values[-1] if values else None
    if rule.compare == Rule.Compare.MISSING:
        if value is not None:
            return Sign.CLEAR
        return Sign.HOLDS if any(each is not None for each in values) else Sign.UNKNOWN
    if value is None:
        return Sign.UNKNOWN
    if rule.compare == Rule.Compare.ABOVE:
        if value > rule.fires_at:
            return Sign.HOLDS
        return Sign.BETWEEN if value > rule.clears_at else Sign.CLEAR
    if value < rule.fires_at:
        return Sign.HOLDS
    return Sign.BETWEEN if value < rule.clears_at else Sign.CLEAR


def of_verdict(rule: Rule, verdict: Verdict) -> bool:
    """Return whether a rule covers an issue."""
    if rule.least == Rule.Severity.BAD and verdict.severity != Rule.Severity.BAD:
        return False
    return concerns(rule, key_of(verdict))


def public_names(verdict: Verdict) -> dict[str, str]:
    """Return the names that an alert may include; message keys are shown only on pages."""
    return {name: text for name, text in verdict.names.items() if name not in PAGES_ONLY}


def key_of(verdict: Verdict) -> Key:
    return Key(verdict.rule, Subject(verdict.kind, verdict.broker, verdict.name))


def what_of(rule: Rule) -> str:
    """Return what identifies a query's alerts."""
    return f"{QUERY} {rule.query_id}"


def of_query(rule: Rule, now_ms: int) -> tuple[dict[Key, SubjectState], Sign]:
    """Return the sign of a query's last run: HOLDS if it returned rows, else CLEAR."""
    query = rule.query
    if query is None:
        return {}, Sign.UNKNOWN
    run = queries().last_run(query, datetime.fromtimestamp(now_ms / 1_000, UTC))
    if run is None:
        return {}, Sign.UNKNOWN
    sign = Sign.HOLDS if run.rows else Sign.CLEAR
    subject = Subject(QUERY, "", query.name)
    # A renamed query has a new key; the alert under the old key clears.
    return {
        Key(what_of(rule), subject): SubjectState(sign, rule.severity, {"rows": run.rows})
    }, Sign.CLEAR


class Observation:
    """One round's observations for a set of rules; the history isn't read again afterwards.

    Attributes:
        left_out: how many metrics were skipped because of LOOKED_AT_MAX.
    """

    def __init__(self, store: HistoryStore, rules: Iterable[Rule], now_ms: int) -> None:
        self.left_out = 0
        self._now_ms = now_ms
        found = list(rules)
        self._verdicts = verdicts_of(store)
        self._is_fresh = abs(now_ms - self._verdicts.at_ms) <= FRESH_MS
        thresholds = [
            rule for rule in found if rule.source == Rule.Source.THRESHOLD and rule.series in SERIES
        ]
        self._subjects: dict[int, list[Subject]] = {}
        self._points: dict[Subject, Points] = {}
        if thresholds:
            self._read(store, thresholds, now_ms)

    def _read(self, store: HistoryStore, thresholds: list[Rule], now_ms: int) -> None:
        ids = store.all_subjects()
        room = LOOKED_AT_MAX
        for rule in thresholds:
            kind = SERIES[rule.series].kind
            wanted = [each for each in ids if each.kind == kind and matches_rule(rule, each)]
            self._subjects[rule.pk] = wanted[:room]
            self.left_out += max(0, len(wanted) - room)
            room = max(0, room - len(wanted))
        for is_missing in (False, True):
            slots = MISSING_SLOTS if is_missing else 1
            subjects = {
                subject
                for rule in thresholds
                if (rule.compare == Rule.Compare.MISSING) is is_missing
                for subject in self._subjects[rule.pk]
            }
            first = now_ms // MIDDLE.step_ms - slots
            read = store.read([ids[each] for each in subjects], MIDDLE, first, slots)
            # A rule that needs one slot finds the same value in the last of the sixty slots.
            self._points |= {each: read[ids[each]] for each in subjects}

    def of(self, rule: Rule) -> tuple[Mapping[Key, SubjectState], Sign]:
        """Return the observed subjects of a rule, and the sign of all others."""
        if rule.source == Rule.Source.VERDICT:
            observed = {
                key_of(each): SubjectState(
                    Sign.HOLDS, each.severity, {**each.evidence, **public_names(each)}
                )
                for each in self._verdicts.verdicts
                if of_verdict(rule, each)
            }
            # Outdated issues are ignored: nothing new fires, and nothing ends.
            return (observed, Sign.CLEAR) if self._is_fresh else ({}, Sign.UNKNOWN)
        if rule.source == Rule.Source.QUERY:
            return of_query(rule, self._now_ms)
        series = SERIES.get(rule.series)
        if series is None:
            return {}, Sign.UNKNOWN
        seen = {}
        for subject in self._subjects[rule.pk]:
            values = values_of([self._points[subject]], series.line.line)
            sign = sign_of(rule, values)
            value = values[-1] if values else None
            evidence: dict[str, float | str] = {} if value is None else {"value": value}
            seen[Key(series.key, subject)] = SubjectState(sign, rule.severity, evidence)
        return seen, Sign.UNKNOWN
