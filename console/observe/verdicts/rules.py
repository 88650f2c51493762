"""The rules, as one table: each checks one kind of subject and returns its evidence.

A rule only reports a problem that is certain, based on trends, ages and rates rather than single
numbers. The thresholds are here, with their reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from console.observe.history import metrics
from console.observe.history.latency import quantile_ms
from console.observe.history.series import Aspect
from console.observe.history.tiers import HOUR_MS, MINUTE_MS
from console.observe.verdicts.window import MINUTES, mean_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from console.observe.history.series import Values
    from console.observe.verdicts.window import Window

    Evidence = dict[str, float]

TREND_MINUTES = 10
"""Long enough for a deployment or a garbage collection to be over."""
STILL_MINUTES = 5
"""A consumer rarely works on one message for longer than this."""
RECENT_MINUTES = 15
LAG_MIN = 100
"""A group that keeps up can have this many unread messages at times."""
GROWTH = 1.5
CALLS_MIN = 20
REFUSED_MIN = 50
"""The broker refuses a mistyped key a few times, but a retrying client every few seconds."""
SLOW_FLUSH_MS, VERY_SLOW_FLUSH_MS = 100.0, 1_000.0
HALF_MIN = 100
HALF_AGE_MS = 30 * MINUTE_MS
FULL_SHARE = 0.85
"""From here on RocketMQ deletes messages early; from 0.90 on it refuses them."""
DISK_DAYS_WARN, DISK_DAYS_BAD = 7.0, 1.0
DISK_HOURS_MIN = 6
BEHIND_MS, VERY_BEHIND_MS = float(MINUTE_MS), 10.0 * MINUTE_MS
GONE_MINUTES = 3
"""Long enough to rule out a restart of the slave."""
SLOTS_AN_HOUR = 6
"""Disk values are stored every ten minutes."""


NEAR_LIMIT, VERY_NEAR_LIMIT = 0.8, 0.95
"""Shares of maxMessageSize; above the second, slightly longer messages are refused."""
HOT_KEY_SHARE = 0.5
CLOCK_OFF_MS = 5_000.0
"""Clocks synchronised by NTP differ by milliseconds; a slow network adds up to a second."""
VERSIONS_MANY = 3
VERSIONS_MINUTES = 54
"""Within an hour: a deployment is over by then, and a broker restart hides a minute."""
COLD_MIN = 1_000
COLD_SHARE = 0.5
GONE_MS_MAX = 24.0 * HOUR_MS
"""A slave that has been gone for a day is assumed to be removed."""


class Severity(StrEnum):
    """Severity, worst first."""

    BAD = "bad"
    WARN = "warn"


class Finding(NamedTuple):
    """A rule's finding: its severity, and the numbers that show it."""

    severity: Severity
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class RuleInput:
    """Input of a rule: a subject, its group (for progress) and its broker; None: not stored.

    `disk_used` and `disk_total` are the broker's last days in ten-minute steps.
    """

    own: Window
    group: Window | None = None
    broker: Window | None = None
    disk_used: Values | None = None


class Rule(NamedTuple):
    """A row: the rule's name, the kind of subject it checks, and its function."""

    name: str
    kind: str
    judge: Callable[[RuleInput], Finding | None]
    persists: Callable[[RuleInput, Evidence], Finding | None] | None = None
    """Whether a verdict with this evidence continues although `judge` wouldn't start it, because it
    must
    not end while the problem gets worse.
    """
    names: tuple[str, ...] = ()
    """Facts that are evidence besides numbers."""


def members(seen: RuleInput) -> float | None:
    return seen.group.last(metrics.MEMBERS) if seen.group is not None else None


def falling_behind(seen: RuleInput) -> Finding | None:
    """Judge: the lag grew by at least half in ten minutes, although the group consumes."""
    lags = seen.own.values(metrics.LAG)
    before, now = mean_of(lags, TREND_MINUTES, TREND_MINUTES + 3), mean_of(lags, 0, 3)
    consumed = seen.own.mean(metrics.CONSUMED, 0, STILL_MINUTES)
    if before is None or now is None or not consumed:
        return None
    age = seen.own.last(metrics.LAG_AGE) or 0.0
    # A long lag that grows steadily grows ever more slowly in relative terms, but is no better for
    # it.
    older = is_older(seen)
    if now - before < LAG_MIN or (now < before * GROWTH and not older):
        return None
    # A peak that is shrinking isn't a trend: the last minutes must rise too.
    middle = mean_of(lags, 3, 6)
    if middle is None or now <= middle:
        return None
    severity = Severity.BAD if age >= 10 * MINUTE_MS else Severity.WARN
    rate = (now - before) / (TREND_MINUTES * 60)
    evidence = {"before": before, "now": now, "minutes": TREND_MINUTES, "consumed": consumed}
    return Finding(severity, evidence | {"growth": rate, "age_ms": age})


def is_older(seen: RuleInput) -> bool:
    """Whether the oldest unread message is minutes old, and older than ten minutes ago."""
    ages = seen.own.values(metrics.LAG_AGE)
    before, now = mean_of(ages, TREND_MINUTES, TREND_MINUTES + 3), mean_of(ages, 0, 3)
    if before is None or now is None:
        return False
    return now >= 2 * MINUTE_MS and now - before >= MINUTE_MS


def is_not_shrinking(seen: RuleInput, evidence: Evidence) -> Finding | None:
    """Continue while the lag is long and not shorter than ten minutes ago."""
    lags = seen.own.values(metrics.LAG)
    before, now = mean_of(lags, TREND_MINUTES, TREND_MINUTES + 3), mean_of(lags, 0, 3)
    if before is None or now is None or now < max(before, LAG_MIN):
        return None
    # A group that consumes nothing has stopped rather than fallen behind.
    if "before" in evidence and unread_and_still(seen):
        return None
    age = seen.own.last(metrics.LAG_AGE) or 0.0
    severity = Severity.BAD if age >= 10 * MINUTE_MS else Severity.WARN
    newer = {"before": before, "now": now, "age_ms": age} if "before" in evidence else {}
    return Finding(severity, {**evidence, **newer})


def still_not_consuming(seen: RuleInput, evidence: Evidence) -> Finding | None:
    """Continue while the group consumes nothing, even if its consumers are unknown."""
    gone = seen.group.values(metrics.MEMBERS)[-GONE_MINUTES - 1 :] if seen.group is not None else []
    lag = seen.own.last(metrics.LAG)
    if not lag or seen.own.sum(metrics.CONSUMED, STILL_MINUTES) != 0:
        return None
    # If there have been no consumers for minutes, another rule applies.
    if len(gone) > GONE_MINUTES and all(count == 0 for count in gone):
        return None
    age = seen.own.last(metrics.LAG_AGE)
    more = {"lag": lag} | ({} if age is None or "age_ms" not in evidence else {"age_ms": age})
    if "minutes" in evidence:
        values = seen.own.values(metrics.CONSUMED)
        more["minutes"] = next((n for n, value in enumerate(reversed(values)) if value), MINUTES)
    return Finding(Severity.BAD if "minutes" in evidence else Severity.WARN, {**evidence, **more})


def queue_still_stuck(seen: RuleInput, evidence: Evidence) -> Finding | None:
    """Continue while the queue's first unread message gets older, regardless of other queues."""
    queue = round(evidence["queue"])
    ages = seen.own.values(metrics.LAG_AGE, part=queue)[-STILL_MINUTES:]
    known = [age for age in ages if age is not None]
    if len(known) < 2 or known[-1] < STILL_MINUTES * MINUTE_MS or known[-1] <= known[0]:
        return None
    lag = seen.own.last(metrics.LAG, queue) or 0.0
    return Finding(Severity.BAD, {**evidence, "age_ms": known[-1], "lag": lag})


def unread_and_still(seen: RuleInput) -> float | None:
    """Return the lag of a group with consumers that has consumed nothing for some minutes."""
    own = seen.own
    lag, count = own.last(metrics.LAG), members(seen)
    if not lag or count == 0 or not own.known(metrics.CONSUMED, STILL_MINUTES):
        return None
    # The message must have waited as long, since a group without traffic also consumes nothing.
    age = own.last(metrics.LAG_AGE)
    if age is None or age < STILL_MINUTES * MINUTE_MS:
        return None
    return None if own.sum(metrics.CONSUMED, STILL_MINUTES) else lag


def stopped(seen: RuleInput) -> Finding | None:
    """Judge: the group consumed within the hour and has stopped, with unread messages."""
    lag = unread_and_still(seen)
    consumed = seen.own.sum(metrics.CONSUMED, MINUTES)
    if lag is None or not consumed:
        return None
    values = seen.own.values(metrics.CONSUMED)
    still = next(n for n, value in enumerate(reversed(values)) if value)
    return Finding(Severity.BAD, {"lag": lag, "minutes": still, "members": members(seen) or 0})


def stalled(seen: RuleInput) -> Finding | None:
    """Judge: the group has consumers and unread messages, but has consumed nothing for half an
    hour.
    """
    lag = unread_and_still(seen)
    if lag is None or seen.own.sum(metrics.CONSUMED, MINUTES):
        return None
    if not seen.own.known(metrics.CONSUMED, MINUTES // 2) or not members(seen):
        return None
    age = seen.own.last(metrics.LAG_AGE) or 0.0
    return Finding(Severity.WARN, {"lag": lag, "age_ms": age, "members": members(seen) or 0})


def rewound(seen: RuleInput) -> Finding | None:
    """Judge: offsets were rewound, so messages are consumed again."""
    count = seen.own.sum(metrics.REWOUND, RECENT_MINUTES)
    return Finding(Severity.WARN, {"count": count, "minutes": RECENT_MINUTES}) if count else None


def one_queue_stuck(seen: RuleInput) -> Finding | None:
    """Judge: a queue's first unread message stays the same while other queues progress."""
    own = seen.own
    if not own.sum(metrics.CONSUMED, STILL_MINUTES):
        return None
    stuck, moving = [], 0
    for part in own.parts(metrics.LAG_AGE):
        ages = own.values(metrics.LAG_AGE, part=part)[-STILL_MINUTES:]
        known = [age for age in ages if age is not None]
        if len(known) < STILL_MINUTES:
            continue
        grew = (known[-1] - known[0]) / ((STILL_MINUTES - 1) * MINUTE_MS)
        if known[-1] >= STILL_MINUTES * MINUTE_MS and grew >= 0.9:
            stuck.append((known[-1], part))
        elif known[-1] < 2 * MINUTE_MS:
            moving += 1
    if not stuck or not moving:
        return None
    age, queue = max(stuck)
    lag = own.last(metrics.LAG, queue) or 0.0
    return Finding(Severity.BAD, {"queue": queue, "age_ms": age, "lag": lag, "count": len(stuck)})


def no_consumer(seen: RuleInput) -> Finding | None:
    """Judge: no consumer is connected, and unread messages accumulate."""
    own = seen.own
    counts = own.values(metrics.MEMBERS)[-3:]
    lag, before = own.last(metrics.LAG), own.mean(metrics.LAG, TREND_MINUTES, TREND_MINUTES + 3)
    if len(counts) < 3 or any(count is None or count > 0 for count in counts) or not lag:
        return None
    age = own.last(metrics.LAG_AGE) or 0.0
    grows = before is not None and lag > before
    severity = Severity.BAD if grows and lag >= LAG_MIN else Severity.WARN
    return Finding(severity, {"lag": lag, "age_ms": age})


def dead_letters(seen: RuleInput) -> Finding | None:
    """Judge: messages became dead letters."""
    count = seen.own.sum(metrics.DEAD, RECENT_MINUTES)
    if not count:
        return None
    severity = Severity.BAD if count >= LAG_MIN else Severity.WARN
    return Finding(severity, {"count": count, "minutes": RECENT_MINUTES})


def many_retries(seen: RuleInput) -> Finding | None:
    """Judge: more than a tenth of the messages a group consumes are retries."""
    retried = seen.own.sum(metrics.RETRIED, RECENT_MINUTES)
    consumed = seen.own.sum(metrics.CONSUMED, RECENT_MINUTES)
    if not retried or not consumed or retried < CALLS_MIN or retried < consumed * 0.1:
        return None
    evidence = {"count": retried, "share": retried / consumed, "minutes": RECENT_MINUTES}
    return Finding(Severity.WARN, evidence)


def retention_is_near(seen: RuleInput) -> Finding | None:
    """Judge: the oldest unread message will expire soon."""
    age = seen.own.last(metrics.LAG_AGE)
    kept = seen.broker.last(metrics.RETENTION) if seen.broker is not None else None
    lag = seen.own.last(metrics.LAG)
    if age is None or not kept or not lag or age < kept * 0.75:
        return None
    left = kept - age
    # If no consumer of the group runs, its unread messages don't count as lost.
    is_abandoned = left <= 0 and members(seen) == 0
    severity = Severity.BAD if left < HOUR_MS and not is_abandoned else Severity.WARN
    return Finding(severity, {"lag": lag, "left_ms": max(0.0, left), "kept_ms": kept})


def slow_flush(seen: RuleInput) -> Finding | None:
    """Judge: one flush in a hundred is slow, for some minutes."""
    counts = seen.own.histogram(metrics.FLUSH_TOOK, STILL_MINUTES)
    p99 = quantile_ms(counts, 0.99)
    if p99 is None or sum(counts) < CALLS_MIN or p99 < SLOW_FLUSH_MS:
        return None
    severity = Severity.BAD if p99 >= VERY_SLOW_FLUSH_MS else Severity.WARN
    half = quantile_ms(counts, 0.5) or 0.0
    return Finding(severity, {"p99_ms": p99, "p50_ms": half, "minutes": STILL_MINUTES})


def puts_fail(seen: RuleInput) -> Finding | None:
    """Judge: the broker failed to store messages."""
    count = seen.own.sum(metrics.PUT_FAILED, STILL_MINUTES)
    return Finding(Severity.BAD, {"count": count, "minutes": STILL_MINUTES}) if count else None


def requests_refused(seen: RuleInput) -> Finding | None:
    """Judge: access control keeps refusing requests."""
    count = seen.own.sum(metrics.REFUSED, RECENT_MINUTES)
    if not count or count < REFUSED_MIN:
        return None
    return Finding(Severity.WARN, {"count": count, "minutes": RECENT_MINUTES})


def half_messages(seen: RuleInput) -> Finding | None:
    """Judge: the number of undecided transactions grows, or one has been undecided for long."""
    now = seen.own.last(metrics.HALF_PENDING)
    before = seen.own.mean(metrics.HALF_PENDING, 27, 33)
    age = seen.own.last(metrics.HALF_AGE)
    piles = now is not None and before is not None and now >= HALF_MIN and now >= 2 * before
    if not now or not (piles or (age is not None and age >= HALF_AGE_MS)):
        return None
    return Finding(Severity.WARN, {"count": now, "before": before or 0.0, "age_ms": age or 0.0})


def disk_fills(seen: RuleInput) -> Finding | None:
    """Judge: at the rate of the last days, the disk will be full soon."""
    used, total = seen.disk_used or [], seen.own.last(metrics.DISK_TOTAL)
    now = seen.own.last(metrics.DISK_USED)
    if total and now is not None and now >= total * FULL_SHARE:
        return Finding(Severity.BAD, {"days": 0.0, "used": now / total, "a_day": 0.0})
    known = [(index, value) for index, value in enumerate(used) if value is not None]
    if not total or len(known) < DISK_HOURS_MIN * SLOTS_AN_HOUR:
        return None
    pace = pace_a_day(used, known)
    room = total * FULL_SHARE - known[-1][1]
    # Usage must still be rising: a disk that was filled once and stays full isn't a trend.
    recent = slope_of(known[-DISK_HOURS_MIN * SLOTS_AN_HOUR :])
    if room <= 0 or pace <= 0 or recent <= 0:
        return None
    days = room / pace
    if days > DISK_DAYS_WARN:
        return None
    severity = Severity.BAD if days <= DISK_DAYS_BAD else Severity.WARN
    return Finding(severity, {"days": days, "used": known[-1][1] / total, "a_day": pace})


def pace_a_day(used: Values, known: list[tuple[int, float]]) -> float:
    """Return a disk's daily growth, or 0 if it also shrinks, so that there is no clear trend.

    Compares two whole days, so that files deleted every night don't count as growth.
    """
    day = 24 * SLOTS_AN_HOUR
    last, before = mean_of(used, 0, day), mean_of(used, day, 2 * day)
    if last is not None and before is not None:
        return last - before
    high, fall = known[0][1], 0.0
    for _, value in known:
        high = max(high, value)
        fall = max(fall, high - value)
    grew = known[-1][1] - known[0][1]
    return slope_of(known) * day if fall <= 0.2 * grew else 0.0


def slope_of(known: list[tuple[int, float]]) -> float:
    """Return the slope of the least-squares line through these points."""
    count = len(known)
    middle, mean = sum(x for x, _ in known) / count, sum(y for _, y in known) / count
    spread = sum((x - middle) ** 2 for x, _ in known)
    return sum((x - middle) * (y - mean) for x, y in known) / spread if spread else 0.0


def slave_behind(seen: RuleInput) -> Finding | None:
    """Judge: a slave has been behind for minutes and isn't catching up."""
    lags, ages = seen.own.values(metrics.REPLICATION_BEHIND), recent_ages(seen)
    if not ages or min(ages) < BEHIND_MS:
        return None
    now, before = mean_of(lags, 0, 1), mean_of(lags, STILL_MINUTES, STILL_MINUTES + 1)
    # A new or returning slave has much to copy, but is progressing.
    if now is None or (before is not None and now < 0.95 * before):
        return None
    severity = Severity.BAD if ages[-1] >= VERY_BEHIND_MS else Severity.WARN
    return Finding(severity, {"lag": now, "age_ms": ages[-1]})


def recent_ages(seen: RuleInput) -> list[float]:
    """Return a slave's delay in the last minutes; empty if any of them is unknown."""
    values = seen.own.values(metrics.REPLICATION_AGE)[-GONE_MINUTES:]
    known = [value for value in values if value is not None]
    return known if len(known) == GONE_MINUTES else []


def slave_gone(seen: RuleInput) -> Finding | None:
    """Judge: a slave that was connected within the hour has been gone for minutes."""
    counts = seen.own.values(metrics.SLAVES)
    recent = [count for count in counts[-GONE_MINUTES:] if count is not None]
    most = max((count for count in counts if count is not None), default=0.0)
    if len(recent) < GONE_MINUTES or max(recent) > most - 1:
        return None
    away = next(n for n, count in enumerate(reversed(counts)) if (count or 0) > recent[-1])
    severity = Severity.WARN if recent[-1] else Severity.BAD
    return Finding(severity, {"before": most, "now": recent[-1], "minutes": away})


def slave_still_gone(seen: RuleInput, evidence: Evidence) -> Finding | None:
    """Continue for a day while there are fewer slaves than before."""
    count = seen.own.last(metrics.SLAVES)
    minutes = evidence["minutes"] + 1
    if count is None or count >= evidence["before"] or minutes * MINUTE_MS > GONE_MS_MAX:
        return None
    severity = Severity.WARN if count else Severity.BAD
    return Finding(severity, {**evidence, "now": count, "minutes": minutes})


def few_replicas(seen: RuleInput) -> Finding | None:
    """Judge: the master rejects messages because too few slaves are in sync."""
    least = seen.own.last(metrics.REPLICAS_MIN)
    synced = seen.own.values(metrics.SLAVES_IN_SYNC)[-2:]
    if least is None or len(synced) < 2 or None in synced:
        return None
    most = max(count for count in synced if count is not None) + 1
    return Finding(Severity.BAD, {"now": most, "least": least}) if most < least else None


def mismatch(seen: RuleInput) -> Finding | None:
    """Judge: consumers of a group have had different subscriptions for minutes."""
    counts = seen.own.values(metrics.MISMATCHED)
    if not all(counts[-STILL_MINUTES:]):
        return None
    # A deployment that changes the subscription is over by then.
    severity = Severity.BAD if all(counts[-RECENT_MINUTES:]) else Severity.WARN
    return Finding(severity, {"odd": counts[-1] or 0.0, "members": members_of(seen)})


def members_of(seen: RuleInput) -> float:
    return seen.own.last(metrics.MEMBERS) or 0.0


def many_versions(seen: RuleInput) -> Finding | None:
    """Judge: three versions for minutes, or two for an hour, which is longer than a deployment."""
    counts = seen.own.values(metrics.VERSIONS)
    recent = [count or 0.0 for count in counts[-TREND_MINUTES:]]
    known = [count for count in counts if count]
    if not recent or not recent[-1]:
        return None
    if min(recent) < VERSIONS_MANY and len(known) < VERSIONS_MINUTES:
        return None
    return Finding(Severity.WARN, {"versions": recent[-1], "members": members_of(seen)})


def hot_queue(seen: RuleInput) -> Finding | None:
    """Judge: a queue gets many times the messages of its topic's other queues."""
    found = []
    for part in seen.own.parts(metrics.HOT_QUEUE):
        shares = seen.own.values(metrics.HOT_QUEUE, part=part)[-STILL_MINUTES:]
        if len(shares) == STILL_MINUTES and all(shares):
            found.append((shares[-1] or 0.0, part))
    rate = seen.own.mean(metrics.PUT, 0, STILL_MINUTES)
    if not found or not rate:
        return None
    share, queue = max(found)
    return Finding(Severity.WARN, {"queue": queue, "share": share / 1000, "rate": rate})


def hot_key(seen: RuleInput) -> Finding | None:
    """Judge: half of a topic's messages have had the same key, for minutes."""
    shares = seen.own.values(metrics.HOT_KEY)[-STILL_MINUTES:]
    known = [share / 1000 for share in shares if share is not None]
    rate = seen.own.mean(metrics.PUT, 0, STILL_MINUTES)
    if len(known) < STILL_MINUTES or min(known) < HOT_KEY_SHARE or not rate:
        return None
    return Finding(Severity.WARN, {"share": known[-1], "rate": rate})


def near_limit(seen: RuleInput) -> Finding | None:
    """Judge: a message was close to the broker's size limit."""
    sizes = seen.own.values(metrics.LARGEST, Aspect.PEAK)[-RECENT_MINUTES:]
    limit = seen.broker.last(metrics.MESSAGE_MAX) if seen.broker is not None else None
    size = max((each for each in sizes if each is not None), default=0.0)
    if not limit or size < limit * NEAR_LIMIT:
        return None
    severity = Severity.BAD if size >= limit * VERY_NEAR_LIMIT else Severity.WARN
    return Finding(severity, {"size": size, "limit": limit, "minutes": RECENT_MINUTES})


def clock_off(seen: RuleInput) -> Finding | None:
    """Judge: a client's clock has differed from the broker's by seconds, for minutes."""
    off = seen.own.values(metrics.CLOCK_OFF)[-STILL_MINUTES:]
    known = [each for each in off if each is not None]
    if len(known) < STILL_MINUTES or min(known) < CLOCK_OFF_MS:
        return None
    return Finding(Severity.WARN, {"off_ms": known[-1]})


def cold_reads(seen: RuleInput) -> Finding | None:
    """Judge: a group reads mostly from disk."""
    cold = seen.own.sum(metrics.GOT_COLD, RECENT_MINUTES)
    consumed = seen.own.sum(metrics.CONSUMED, RECENT_MINUTES)
    if not cold or not consumed or cold < COLD_MIN or cold < consumed * COLD_SHARE:
        return None
    share = min(1.0, cold / consumed)
    return Finding(Severity.WARN, {"count": cold, "share": share, "minutes": RECENT_MINUTES})


PLACE = ("message_topic", "message_queue", "message_offset")
MESSAGE = ("message", "times", *PLACE)
HEAD = ("message", "times", "offset", "host", "bytes")
RULES = (
    Rule("queue-stuck", metrics.PROGRESS, one_queue_stuck, queue_still_stuck, HEAD),
    Rule("stopped", metrics.PROGRESS, stopped, still_not_consuming),
    Rule("stalled", metrics.PROGRESS, stalled, still_not_consuming),
    Rule("falling-behind", metrics.PROGRESS, falling_behind, is_not_shrinking),
    Rule("retention", metrics.PROGRESS, retention_is_near),
    Rule("rewound", metrics.PROGRESS, rewound, is_not_shrinking),
    Rule("cold-reads", metrics.PROGRESS, cold_reads),
    Rule("no-consumer", metrics.GROUP, no_consumer),
    Rule("dead-letters", metrics.GROUP, dead_letters, names=MESSAGE),
    Rule("many-retries", metrics.GROUP, many_retries, names=MESSAGE),
    Rule("mismatch", metrics.GROUP, mismatch, names=("wants", "odd_clients")),
    Rule("many-versions", metrics.GROUP, many_versions, names=("kinds",)),
    Rule("hot-queue", metrics.TOPIC, hot_queue, names=("queues",)),
    Rule("hot-key", metrics.TOPIC, hot_key, names=("key",)),
    Rule("near-limit", metrics.TOPIC, near_limit, names=PLACE),
    Rule("few-replicas", metrics.BROKER, few_replicas),
    Rule("slave-gone", metrics.BROKER, slave_gone, slave_still_gone),
    Rule("slave-behind", metrics.BROKER, slave_behind),
    Rule("puts-fail", metrics.BROKER, puts_fail),
    Rule("requests-refused", metrics.BROKER, requests_refused),
    Rule("disk-fills", metrics.BROKER, disk_fills),
    Rule("slow-flush", metrics.BROKER, slow_flush),
    Rule("half-messages", metrics.BROKER, half_messages),
    Rule("clock-off", metrics.BROKER, clock_off, names=("host", "hosts", "way", "topic")),
)
BY_NAME = {rule.name: rule for rule in RULES}
