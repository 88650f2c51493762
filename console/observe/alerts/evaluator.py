"""Applies the alert rules once a minute, in the collector, and stores the results.

A round is one transaction: alert states, messages in the outbox, and the time of the round.
Durations use the monotonic clock, and the wall clock across a restart, within limits.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING

from django.db import DatabaseError, connection, transaction

from broker_core.isolation import FAILURES, isolated
from console.observe.alerts.life import EndReason, Life, Sign, Stage, step
from console.observe.alerts.models import (
    Alert,
    Message,
    Preferences,
    Rule,
    Silence,
    Window,
    preferences,
)
from console.observe.alerts.notices import announce, thread_of
from console.observe.alerts.observing import Key, Observation, SubjectState, concerns, terms_of
from console.observe.alerts.windows import is_about, is_open
from console.observe.history.database import HistoryError
from console.observe.history.metrics import BROKER, Subject
from console.observe.history.tiers import DAY_MS, HOUR_MS, MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from console.observe.history.store import HistoryStore

logger = logging.getLogger(__name__)

EVERY_MS = MINUTE_MS - 5_000
"""Samples arrive every ten seconds, slightly early or late."""
PASSED_MS_MAX = 2 * MINUTE_MS
"""If more time passed without a round, the state in between is unknown."""
WELL_MS = 3 * MINUTE_MS
OPEN_MAX = 500
"""The maximum number of open alerts per rule; more would add no information."""
ENDED_MAX, MESSAGES_MAX = 20_000, 10_000
FORGET_EVERY_MS = HOUR_MS
MESSAGES_KEPT_MS = 30 * DAY_MS


class Evaluator:
    """Used only in the collector's thread."""

    def __init__(self, store: HistoryStore, monotonic_ms: Callable[[], int]) -> None:
        self._store = store
        self._monotonic_ms = monotonic_ms
        self._looked: int | None = None
        self._forgot: int | None = None
        self._last_problem = ""

    def is_well(self) -> bool:
        """Return whether samples arrive and rules were applied recently. Thread-safe."""
        looked = self._looked
        return looked is not None and self._monotonic_ms() - looked <= WELL_MS

    def look(self, now_ms: int) -> None:
        """Apply the rules if a minute has passed; after a database error, the next call retries."""
        at = self._monotonic_ms()
        if self._looked is not None and at - self._looked < EVERY_MS:
            return
        try:
            self._round(now_ms, at)
        except (DatabaseError, HistoryError) as error:
            # A broken connection stays broken, so close it; the next round opens another one.
            if not connection.in_atomic_block:
                connection.close()
            self._log_change(f"rules aren't applied: {error}")
            return
        except Exception as error:  # noqa: BLE001  the next round tries again
            FAILURES.report("evaluating the alert rules", "", error)
            self._log_change(f"rules aren't applied: {error!r}")
            return
        self._looked = at

    def _round(self, now_ms: int, at: int) -> None:
        kept = preferences()
        rules = list(Rule.objects.filter(enabled=True).order_by("pk"))
        observation = Observation(self._store, rules, now_ms)
        passed = self._passed(kept, now_ms, at)
        problems = []
        if observation.left_out:
            problems.append(f"{observation.left_out} metrics of rules weren't checked")
        with transaction.atomic():
            # Pages may have changed or deleted rules meanwhile, so use the stored ones.
            current = {
                rule.pk: rule.version
                for rule in Rule.objects.select_for_update().filter(enabled=True)
            }
            quiet = MutedSubjects(now_ms)
            for rule in rules:
                if current.get(rule.pk) != rule.version:
                    continue
                # If a rule fails, undo its changes and apply the other rules.
                with isolated("applying an alert rule", rule.name) as one, transaction.atomic():
                    full = RuleAlerts(rule, quiet, now_ms).advance(observation, passed)
                    if full:
                        problems.append(f"{rule.name}: {full} alerts beyond {OPEN_MAX}")
                    announce(rule, passed, now_ms)
                if isinstance(one.error, DatabaseError):
                    raise one.error
                if one.error is not None:
                    problems.append(f"{rule.name}: not applied; see the collector's log")
            self._end_alerts_of_disabled_rules(passed, now_ms)
            problem = "; ".join(problems)[:400]
            Preferences.objects.filter(pk=kept.pk).update(looked_ms=now_ms, looked_problem=problem)
        self._log_change(problem)
        if self._forgot is None or at - self._forgot >= FORGET_EVERY_MS:
            forget(kept.keep_days, now_ms)
            self._forgot = at

    def _passed(self, kept: Preferences, now_ms: int, at: int) -> int:
        """Return the time since the last round, of this process or the previous one."""
        if self._looked is not None:
            passed = at - self._looked
        else:
            passed = now_ms - kept.looked_ms if kept.looked_ms is not None else 0
        return min(max(0, passed), PASSED_MS_MAX)

    def _end_alerts_of_disabled_rules(self, passed: int, now_ms: int) -> None:
        """End the alerts of disabled rules, and notify the channels that announced them."""
        for rule in Rule.objects.filter(enabled=False, alerts__open_key__isnull=False).distinct():
            with isolated("ending a rule's alerts", rule.name), transaction.atomic():
                end_all(rule, now_ms)
        for rule in Rule.objects.filter(enabled=False, alerts__owes_end=True).distinct():
            with isolated("announcing the end of a rule's alerts", rule.name), transaction.atomic():
                announce(rule, passed, now_ms)

    def _log_change(self, problem: str) -> None:
        """Log a state once when it changes."""
        if problem and problem != self._last_problem:
            logger.warning("alert rules not fully applied problem=%s", problem)
        self._last_problem = problem


class MutedSubjects:
    """Decides which alerts are muted now: silenced threads and subjects in maintenance."""

    def __init__(self, now_ms: int) -> None:
        # Ignore when a silence began: after the clock is set back, that may be in the future.
        self._silenced = set(
            Silence.objects.filter(until_ms__gt=now_ms).values_list("rule_id", "thread")
        )
        self._windows = [
            window for window in Window.objects.filter(enabled=True) if is_open(window, now_ms)
        ]

    def muted(self, alert: Alert) -> str:
        if (alert.rule_id, alert.thread) in self._silenced:
            return Alert.Muted.SILENCE
        name = alert.broker if alert.kind == BROKER else alert.name
        if any(
            is_about(each.broker_pattern, each.name_pattern, alert.broker, name)
            for each in self._windows
        ):
            return Alert.Muted.WINDOW
        return Alert.Muted.NO


class RuleAlerts:
    """The alerts of one rule in one round."""

    def __init__(self, rule: Rule, quiet: MutedSubjects, now_ms: int) -> None:
        self._rule = rule
        self._quiet = quiet
        self._now_ms = now_ms
        self._terms = terms_of(rule)

    def advance(self, observation: Observation, passed: int) -> int:
        """Advance each alert and open new ones; return how many exceeded the limit."""
        seen, otherwise = observation.of(self._rule)
        others = SubjectState(otherwise, "", {})
        alerts = {
            Key(each.what, Subject(each.kind, each.broker, each.name)): each
            for each in self._rule.alerts.filter(open_key__isnull=False)
        }
        room = OPEN_MAX - len(alerts)
        full = 0
        for key, alert in alerts.items():
            self._step(alert, key, seen.get(key, others), passed)
        for key, each in seen.items():
            if key in alerts or each.sign is not Sign.HOLDS:
                continue
            if room <= 0:
                full += 1
                continue
            room -= 1
            self._open(key, each)
        return full

    def _step(self, alert: Alert, key: Key, seen: SubjectState, passed: int) -> None:
        if not concerns(self._rule, key):
            end(alert, EndReason.RULE, self._now_ms)
            return
        before = Life(Stage(alert.state), alert.held_ms, alert.clear_ms, alert.unknown_ms)
        after = step(before, seen.sign, passed, self._terms)
        if after is None:
            alert.delete()
            return
        if after.stage is Stage.RESOLVED:
            assert after.reason is not None
            end(alert, after.reason, self._now_ms)
            return
        if seen.sign is Sign.HOLDS:
            alert.severity = seen.severity
            alert.evidence = self._evidence(seen)
        self._take(alert, after)
        alert.save()

    def _open(self, key: Key, seen: SubjectState) -> None:
        life = step(None, Sign.HOLDS, 0, self._terms)
        assert life is not None
        alert = Alert(
            rule=self._rule,
            rule_name=self._rule.name,
            what=key.what,
            kind=key.subject.kind,
            broker=key.subject.broker,
            name=key.subject.name,
            severity=seen.severity,
            evidence=self._evidence(seen),
            began_ms=self._now_ms,
            open_key=open_key(self._rule, key),
        )
        self._take(alert, life)
        alert.save(force_insert=True)

    def _take(self, alert: Alert, life: Life) -> None:
        if life.stage is Stage.FIRING and alert.fired_ms is None:
            alert.fired_ms = self._now_ms
        alert.state = life.stage.value
        alert.held_ms, alert.clear_ms = life.held_ms, life.clear_ms
        alert.unknown_ms = life.unknown_ms
        alert.rule_name = self._rule.name
        if not alert.announced:
            # Once an alert was announced, its end is sent in the same thread, even if the rule
            # changes.
            alert.thread = thread_of(self._rule, alert.what, alert.kind, alert.broker, alert.name)
        alert.muted = self._quiet.muted(alert) if life.stage is Stage.FIRING else ""

    def _evidence(self, seen: SubjectState) -> dict[str, float | str]:
        if self._rule.source != Rule.Source.THRESHOLD:
            return dict(seen.evidence)
        return {**seen.evidence, "level": self._rule.fires_at, "compare": self._rule.compare}


def open_key(rule: Rule, key: Key) -> str:
    parts = (str(rule.pk), key.what, *key.subject)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def end(alert: Alert, why: EndReason, now_ms: int) -> None:
    """End an alert; delete it if it never fired."""
    if alert.state == Alert.State.PENDING:
        alert.delete()
        return
    alert.state = Alert.State.RESOLVED
    # After the clock was set back, an alert must not end before it began.
    alert.ended_ms = max(now_ms, alert.fired_ms or 0)
    alert.ended_why = why.value
    alert.owes_end = alert.announced
    alert.open_key = None
    alert.muted = ""
    alert.save()


def end_all(rule: Rule, now_ms: int) -> None:
    """End all alerts of a rule that was disabled or deleted."""
    for alert in rule.alerts.filter(open_key__isnull=False):
        end(alert, EndReason.RULE, now_ms)


def forget(keep_days: int, now_ms: int) -> None:
    """Delete alerts and messages beyond their retention or the limits."""
    old = now_ms - keep_days * DAY_MS
    ended = Alert.objects.filter(state=Alert.State.RESOLVED, owes_end=False)
    ended.filter(ended_ms__lt=old).delete()
    for last in ended.order_by("-pk").values_list("pk", flat=True)[ENDED_MAX : ENDED_MAX + 1]:
        ended.filter(pk__lte=last).delete()
    done = Message.objects.exclude(state=Message.State.WAITING)
    done.filter(created_ms__lt=now_ms - MESSAGES_KEPT_MS).delete()
    for last in done.order_by("-pk").values_list("pk", flat=True)[MESSAGES_MAX : MESSAGES_MAX + 1]:
        done.filter(pk__lte=last).delete()
    Silence.objects.filter(until_ms__lt=old).delete()
