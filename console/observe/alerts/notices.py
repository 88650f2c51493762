"""Writes messages about alerts that began or ended into the outbox, without message storms.

This module keeps no state of its own. Each alert records whether its beginning and its end are in
the outbox, and each round writes the missing ones in the transaction that changed the alerts. A
process that dies neither loses nor duplicates a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.utils import translation

from console.observe.alerts.life import MINUTE_MS
from console.observe.alerts.models import Alert, Channel, Message, Rule, Thread
from console.observe.alerts.wording import words_of
from console.observe.history.metrics import GROUP, PROGRESS, TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BETWEEN_MS_MIN = 5 * MINUTE_MS
"""The minimum time between two messages of a thread."""
COMBINED_FROM = 10
"""If a rule has at least this many threads in one round, one message covers all of them."""
LISTED_MAX = 20
WAITING_MAX = 100
"""A channel with this many pending messages gets a single summary of firing alerts instead."""


@dataclass(slots=True)
class ThreadNews:
    """The changes in one thread that its channels haven't been notified of."""

    key: str
    firing: list[Alert] = field(default_factory=list)
    ended: list[Alert] = field(default_factory=list)
    is_repeat: bool = False


def thread_of(rule: Rule, what: str, kind: str, broker: str, name: str) -> str:
    """Return the thread of an alert: alerts of one thread share their messages."""
    group, _at, topic = name.partition("@")
    match rule.group_by:
        case Rule.GroupBy.RULE:
            return "*"
        case Rule.GroupBy.BROKER:
            return f"broker {broker}"
        case Rule.GroupBy.GROUP if kind in {GROUP, PROGRESS}:
            return f"group {group}"
        case Rule.GroupBy.TOPIC if kind in {TOPIC, PROGRESS}:
            return f"topic {topic or name}"
        case _alone:
            return f"{what} {broker} {name}"


def announce(rule: Rule, passed_ms: int, now_ms: int) -> int:
    """Write a rule's news to the outbox; return the number of messages.

    Call it within the transaction of the alerts.
    """
    channels = list(rule.channels.filter(enabled=True))
    if not channels:
        # A channel added later is notified of firing alerts, but it's too late for ends.
        rule.alerts.filter(owes_end=True).update(owes_end=False)
        return 0
    alerts = list(rule.alerts.filter(state=Alert.State.FIRING).order_by("id"))
    ended = list(rule.alerts.filter(owes_end=True).order_by("id"))
    threads = {each.key: each for each in rule.threads.all()}
    for thread in threads.values():
        thread.quiet_ms += passed_ms
    news = [
        each
        for each in thread_news(alerts, ended)
        if is_due(each, threads.get(each.key), rule.repeat_minutes * MINUTE_MS)
    ]
    written = 0
    for language in sorted({channel.speaks for channel in channels}):
        with translation.override(language):
            contents = contents_of(rule, news)
        for content in contents:
            for channel in channels:
                if channel.speaks == language:
                    put(channel, content, now_ms)
                    written += 1
    _remember(rule, news, threads, {each.thread for each in (*alerts, *ended)})
    return written


def thread_news(firing: Iterable[Alert], ended: Iterable[Alert]) -> list[ThreadNews]:
    """Return the threads in the order of their alerts; muted alerts have no news."""
    threads: dict[str, ThreadNews] = {}
    for alert in ended:
        threads.setdefault(alert.thread, ThreadNews(alert.thread)).ended.append(alert)
    for alert in firing:
        if not alert.muted:
            threads.setdefault(alert.thread, ThreadNews(alert.thread)).firing.append(alert)
    return list(threads.values())


def is_due(news: ThreadNews, thread: Thread | None, repeat_ms: int) -> bool:
    is_news = bool(news.ended) or any(not each.announced for each in news.firing)
    if is_news:
        return thread is None or thread.quiet_ms >= BETWEEN_MS_MIN
    news.is_repeat = bool(repeat_ms and thread is not None and thread.quiet_ms >= repeat_ms)
    return news.is_repeat


def _remember(
    rule: Rule, news: Sequence[ThreadNews], threads: dict[str, Thread], alive: set[str]
) -> None:
    """Update alerts after their messages are in the outbox; delete idle threads."""
    keys = {each.key for each in news}
    firing = [alert.pk for each in news for alert in each.firing if not alert.announced]
    Alert.objects.filter(pk__in=firing).update(announced=True)
    ended = [alert.pk for each in news for alert in each.ended]
    Alert.objects.filter(pk__in=ended).update(owes_end=False)
    for key in keys - threads.keys():
        Thread.objects.create(rule=rule, key=key)
    for key, thread in threads.items():
        if key in keys:
            thread.quiet_ms = 0
        elif key not in alive and thread.quiet_ms >= BETWEEN_MS_MIN:
            thread.delete()
            continue
        thread.save(update_fields=["quiet_ms"])


def put(channel: Channel, content: dict[str, Any], now_ms: int) -> Message:
    """Add a message to the outbox, or a summary if too many are already pending."""
    waiting = channel.messages.filter(state=Message.State.WAITING)
    count = waiting.count()
    if count >= WAITING_MAX:
        waiting.update(state=Message.State.LEFT_OUT, outcome="")
        with translation.override(channel.speaks):
            content = summary_of_all(channel, count + 1)
    return Message.objects.create(channel=channel, created_ms=now_ms, content=content)


def contents_of(rule: Rule, news: Sequence[ThreadNews]) -> list[dict[str, Any]]:
    """Return one message per thread, or a single message for all."""
    if len(news) > COMBINED_FROM:
        return [combined(rule, news)]
    return [content_of(rule, each) for each in news]


def content_of(rule: Rule, news: ThreadNews) -> dict[str, Any]:
    """Return a message about one thread's firing and ended alerts."""
    return made(
        rule.name,
        news.firing,
        news.ended,
        {"repeat": news.is_repeat, "rule_id": rule.pk, "thread": news.key},
    )


def combined(rule: Rule, news: Sequence[ThreadNews]) -> dict[str, Any]:
    firing = [alert for each in news for alert in each.firing]
    ended = [alert for each in news for alert in each.ended]
    return made(rule.name, firing, ended, {"repeat": all(each.is_repeat for each in news)})


def summary_of_all(channel: Channel, left_out: int) -> dict[str, Any]:
    """Return a summary of all firing alerts for a channel, which replaces many messages."""
    firing = Alert.objects.filter(
        state=Alert.State.FIRING, muted="", rule__channels=channel
    ).order_by("id")
    return made("", list(firing), [], {"left_out": left_out})


def made(
    name: str, firing: Sequence[Alert], ended: Sequence[Alert], more: dict[str, Any]
) -> dict[str, Any]:
    shown = [*firing, *ended][:LISTED_MAX]
    severities = {alert.severity for alert in (firing or ended)}
    return {
        "status": "firing" if firing else "resolved",
        "severity": "bad" if "bad" in severities else "warn",
        "rule": name,
        "firing": len(firing),
        "resolved": len(ended),
        "alerts": [alert_facts(alert) for alert in shown],
        "more": len(firing) + len(ended) - len(shown),
        **more,
    }


def alert_facts(alert: Alert) -> dict[str, Any]:
    words = words_of(alert)
    return {
        "id": alert.pk,
        "status": alert.state,
        "severity": alert.severity,
        "title": words.title,
        "subject": words.subject,
        "evidence": words.evidence,
        "step": words.step,
        "path": words.url,
        "kind": alert.kind,
        "broker": alert.broker,
        "name": alert.name,
        "rule": alert.rule_name,
        "what": alert.what,
        "fired_ms": alert.fired_ms,
        "ended_ms": alert.ended_ms,
        "ended_why": alert.ended_why,
    }
