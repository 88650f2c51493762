"""Simulated minutes: the history of each, its messages, and the round at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from console.observe.alerts.evaluator import Evaluator
from console.observe.alerts.models import Channel, Message, Rule
from console.observe.history import metrics
from console.observe.history.metrics import Metric, Subject
from console.observe.history.tiers import MINUTE_MS
from console.observe.verdicts.judge import VERDICTS, Verdict, Verdicts
from tests.support.history_points import keep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.observe.history.store import HistoryStore

FIRST_MS = 1_795_251_600_000
GROUP = Subject(metrics.GROUP, "broker-a", "billing")
STUCK = {"count": 1.0, "queue": 3.0, "age_ms": 600_000.0, "lag": 40.0}
DEAD = {"count": 3.0, "minutes": 15.0}


def verdict(name: str = "billing", severity: str = "bad", broker: str = "broker-a") -> Verdict:
    return Verdict("dead-letters", severity, metrics.GROUP, broker, name, FIRST_MS, FIRST_MS, DEAD)


class Rounds:
    """The collector's minutes: `lag` is the stored value of a minute, None is a gap."""

    def __init__(self, store: HistoryStore) -> None:
        self.store = store
        self.now_ms = FIRST_MS
        self.monotonic_ms = 5_000
        self.evaluator = Evaluator(store, lambda: self.monotonic_ms)

    def restart(self, *, away_ms: int = 0) -> None:
        """Start a new process, whose clock is unrelated to the old one's."""
        self.now_ms += away_ms
        self.monotonic_ms = 77
        self.evaluator = Evaluator(self.store, lambda: self.monotonic_ms)

    def pass_minute(
        self,
        lag: int | None = None,
        *,
        verdicts: Iterable[Verdict] = (),
        subjects: Iterable[Subject] = (GROUP,),
        metric: Metric = metrics.LAG,
    ) -> None:
        rows = {(each, metric): [lag] * 6 for each in subjects}
        if rows and lag is not None:
            keep(self.store, self.now_ms, rows)
        self.now_ms += MINUTE_MS
        self.monotonic_ms += MINUTE_MS
        outbox_messages = Verdicts(self.now_ms, list(verdicts))
        self.store.note(VERDICTS, msgspec.json.encode(outbox_messages))
        self.evaluator.look(self.now_ms)

    def pass_minutes(self, lags: Iterable[int | None]) -> None:
        for lag in lags:
            self.pass_minute(lag)


def channel(name: str = "on call") -> Channel:
    return Channel.objects.create(
        name=name, kind=Channel.Kind.WEBHOOK, url="https://example.com/hook"
    )


def threshold(*channels: Channel, **more: Any) -> Rule:
    """Return a rule that fires when a group's lag is above 100 for 2 min, until it's 50 for 2."""
    values: dict[str, Any] = {
        "name": "lag",
        "source": Rule.Source.THRESHOLD,
        "series": "group/lag/lag",
        "fires_at": 100,
        "clears_at": 50,
        "for_minutes": 2,
        "clear_minutes": 2,
        "repeat_minutes": 0,
    }
    rule = Rule.objects.create(**values | more)
    rule.channels.set(channels)
    return rule


def about_verdicts(*channels: Channel, **more: Any) -> Rule:
    values: dict[str, Any] = {
        "name": "verdicts",
        "source": Rule.Source.VERDICT,
        "for_minutes": 0,
        "clear_minutes": 0,
        "repeat_minutes": 0,
    }
    rule = Rule.objects.create(**values | more)
    rule.channels.set(channels)
    return rule


def outbox_messages() -> list[tuple[str, int, int]]:
    """Return the messages in the outbox: status, number of firing and of ended alerts."""
    return [
        (each["status"], each["firing"], each["resolved"])
        for each in Message.objects.order_by("id").values_list("content", flat=True)
    ]
