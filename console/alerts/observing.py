"""Observing: what the history and the verdicts say of every subject of every rule, in one round."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from console.alerts.life import MISSING_MS_MAX, UNKNOWN_MS_MAX, Sign, Terms
from console.alerts.models import Rule
from console.alerts.series import SERIES
from console.alerts.windows import is_about
from console.history.metrics import BROKER, Subject
from console.history.series import values_of
from console.history.tiers import MIDDLE, MINUTE_MS
from console.sql.scheduled import last_word
from console.verdicts.judge import verdicts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from console.history.points import Points
    from console.history.series import Values
    from console.history.store import HistoryStore
    from console.verdicts.judge import Verdict

MISSING_SLOTS = 60
"""A figure that was known within this many minutes and is not any more is missing."""
MISSING_MINUTES_MAX = 45
QUERY = "query"
FRESH_MS = 3 * MINUTE_MS
PAGES_ONLY = frozenset({"key"})
LOOKED_AT_MAX = 20_000
"""Figures a round for all rules together: half a second of a core."""


class Key(NamedTuple):
    """What tells the alerts of one rule apart."""

    what: str
    subject: Subject


class Seen(NamedTuple):
    """What is seen of one subject, how urgent it is, and the numbers that show it."""

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


def is_meant(rule: Rule, subject: Subject) -> bool:
    """Whether a rule's patterns mean a subject; a broker is meant by its name."""
    name = subject.broker if subject.kind == BROKER else subject.name
    return is_about(rule.broker_pattern, rule.name_pattern, subject.broker, name)


def concerns(rule: Rule, key: Key) -> bool:
    """Whether an alert is still one that a rule may have, after somebody changed the rule."""
    if rule.source == Rule.Source.QUERY:
        return key.what == what_of(rule)
    if rule.source == Rule.Source.VERDICT:
        is_its = not rule.verdicts or key.what in rule.verdicts
    else:
        is_its = key.what == rule.series
    return is_its and is_meant(rule, key.subject)


def sign_of(rule: Rule, values: Values) -> Sign:
    """Return what the last of some minutes says; hysteresis is between the two levels."""
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
    """Whether a rule wants to hear of a verdict."""
    if rule.least == Rule.Severity.BAD and verdict.severity != Rule.Severity.BAD:
        return False
    return concerns(rule, key_of(verdict))


def told(verdict: Verdict) -> dict[str, str]:
    """Return the names that an alert may tell: the keys of messages stay on the pages."""
    return {name: text for name, text in verdict.names.items() if name not in PAGES_ONLY}


def key_of(verdict: Verdict) -> Key:
    return Key(verdict.rule, Subject(verdict.kind, verdict.broker, verdict.name))


def what_of(rule: Rule) -> str:
    """Return what tells the alerts about one query from those about others."""
    return f"{QUERY} {rule.query_id}"


def of_query(rule: Rule, now_ms: int) -> tuple[dict[Key, Seen], Sign]:
    """Return what the last run of a rule's query says: rows fire, none is clear."""
    query = rule.query
    run = None if query is None else last_word(query, datetime.fromtimestamp(now_ms / 1_000, UTC))
    if query is None or run is None:
        return {}, Sign.UNKNOWN
    sign = Sign.HOLDS if run.rows else Sign.CLEAR
    subject = Subject(QUERY, "", query.name)
    # The alert of a query that was renamed goes on by its new name: what is not seen is clear.
    return {Key(what_of(rule), subject): Seen(sign, rule.severity, {"rows": run.rows})}, Sign.CLEAR


class Observation:
    """One round's look at everything that these rules want; reads no more of the history later.

    Attributes:
        left_out: figures that were not looked at, since there were more than LOOKED_AT_MAX.
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
            wanted = [each for each in ids if each.kind == kind and is_meant(rule, each)]
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
            # A rule that looks at one slot finds the same value at the end of sixty.
            self._points |= {each: read[ids[each]] for each in subjects}

    def of(self, rule: Rule) -> tuple[Mapping[Key, Seen], Sign]:
        """Return what is seen of the subjects of a rule, and the sign of all the others."""
        if rule.source == Rule.Source.VERDICT:
            said = {
                key_of(each): Seen(Sign.HOLDS, each.severity, {**each.evidence, **told(each)})
                for each in self._verdicts.verdicts
                if of_verdict(rule, each)
            }
            # An old word is no word: nothing new fires, and nothing ends.
            return (said, Sign.CLEAR) if self._is_fresh else ({}, Sign.UNKNOWN)
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
            seen[Key(series.key, subject)] = Seen(sign, rule.severity, evidence)
        return seen, Sign.UNKNOWN
