"""The summary of all brokers: figures, lagging groups, busiest topics, one verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, ngettext

from console.gateway.answers import RuntimeInfo, TopicKind
from console.gateway.errors import GatewayError, UnconfirmedBrokerError
from console.observe.overview.issues import Issues
from console.observe.overview.replication import BrokerSet, replication_findings, sets_of
from console.observe.overview.sparks import Sparks
from console.observe.overview.states import (
    NO_CONSUMER_RULE,
    Finding,
    State,
    has_no_consumers,
    no_consumers_finding,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from console.gateway.answers import (
        BrokerNode,
        ConsumeProgress,
        GroupConnections,
        Topic,
        Traffic,
    )
    from console.gateway.ports import ClusterGateway, GroupGateway, TopicGateway
    from console.observe.history.reading import Spark
    from console.observe.verdicts.words import Shown

DISK_RATIO_WARN = 0.75
DISK_RATIO_BAD = 0.85  # RocketMQ deletes early from here on, and rejects writes at 0.90
ROWS_MAX = 8
TOPICS_NAMED_MAX = 5
# Each topic or group costs one request per refresh; the page mentions the limit if it is exceeded.
LOOKED_AT_MAX = 300
NO_SPARKS = Sparks()


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker with its figures, or why they are unknown."""

    node: BrokerNode
    info: RuntimeInfo | None
    problem: GatewayError | None
    spark: Spark | None = None

    @property
    def is_confirmed(self) -> bool:
        return not isinstance(self.problem, UnconfirmedBrokerError)

    @property
    def state(self) -> State:
        if not self.is_confirmed:
            return State.WARN
        if self.info is None:
            return State.BAD
        if self.info.store_refuses is not None:
            return State.BAD
        disk = disk_state(self.info.commit_log_disk_ratio)
        is_degraded = self.info.damaged_ranges or self.info.unreachable_messages
        return State.WARN if disk is State.OK and is_degraded else disk

    @property
    def disk_percent(self) -> int | None:
        ratio = self.info.commit_log_disk_ratio if self.info else None
        return None if ratio is None else round(ratio * 100)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group with its lag."""

    progress: ConsumeProgress
    connections: GroupConnections
    spark: Spark | None = None

    @property
    def state(self) -> State:
        is_abandoned = has_no_consumers(self.progress, self.connections)
        return State.WARN if is_abandoned else State.OK


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic with the messages it received."""

    topic: Topic
    traffic: Traffic
    spark: Spark | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over brokers; None, with the reason, if a broker didn't respond."""

    value: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """All data of the overview.

    Unconfirmed brokers are listed but not counted.
    """

    brokers: tuple[BrokerRow, ...]
    put_tps: Total
    get_tps: Total
    put_today: Total
    get_today: Total
    topics: tuple[TopicRow, ...]
    topic_count: int
    groups: tuple[GroupRow, ...]
    group_count: int
    lag: int
    is_complete: bool  # every master responded; otherwise topics, groups, lag are unknown
    findings: tuple[Finding, ...]
    looked_at_some: bool
    sets: tuple[BrokerSet, ...]
    name_server: str
    read_at_ms: int
    verdicts: tuple[Shown, ...] = ()
    is_judged: bool = True
    """Whether the rules have run at all."""
    sparks: Sparks = NO_SPARKS

    @property
    def counts_since_ms(self) -> int | None:
        """Start of today's counts if a broker has started today."""
        starts = [
            since
            for row in self.brokers
            if row.info is not None and (since := row.info.counts_since_ms) is not None
        ]
        return max(starts, default=None)

    @property
    def is_empty(self) -> bool:
        """Whether clients have neither sent nor subscribed yet."""
        return self.is_complete and not self.topic_count and not self.group_count

    @property
    def issues(self) -> Issues:
        """All that needs attention: the banner and the list beside the flow show these."""
        return Issues.of(self.findings, self.verdicts, is_judged=self.is_judged)

    @property
    def state(self) -> State:
        return self.issues.worst

    @property
    def verdict(self) -> str:
        worst = next(iter(self.issues.entries), None)
        if isinstance(worst, Finding):
            return worst.text
        if worst is not None:
            return _("%(subject)s: %(title)s. %(evidence)s") % {
                "subject": worst.subject,
                "title": worst.title,
                "evidence": worst.evidence,
            }
        brokers = len(self.brokers)
        answered = ngettext("The broker is up", "All %(count)d brokers are up", brokers) % {
            "count": brokers
        }
        if not self.group_count:
            return _("%(answered)s. No group has consumed yet.") % {"answered": answered}
        if self.lag:
            return _("%(answered)s. Every lagging group has active consumers.") % {
                "answered": answered
            }
        return _("%(answered)s. No group is lagging.") % {"answered": answered}


def disk_state(ratio: float | None) -> State:
    if ratio is None or ratio < DISK_RATIO_WARN:
        return State.OK
    return State.WARN if ratio < DISK_RATIO_BAD else State.BAD


def summarize(
    cluster_gateway: ClusterGateway,
    topic_gateway: TopicGateway,
    group_gateway: GroupGateway,
    verdicts: Sequence[Shown] = (),
) -> Summary:
    """Return the current data of the overview, with the rules' `verdicts`.

    Raises:
        GatewayError: no name server responds. A broker that doesn't respond is part of the summary.
    """
    cluster = cluster_gateway.registered()
    runtime = cluster_gateway.runtime() if cluster.nodes else {}
    sets = sets_of(cluster, cluster_gateway.replication() if cluster.in_sets else {})
    brokers = tuple(
        BrokerRow(
            node,
            found if isinstance(found := runtime.get(node.address), RuntimeInfo) else None,
            found if isinstance(found, GatewayError) else None,
        )
        for node in cluster.nodes
    )
    # If no broker is confirmed, the figures are unknown for that reason.
    counted = [row for row in brokers if row.is_confirmed] or brokers
    masters = [row for row in counted if row.node.is_master]
    all_answer = bool(masters) and all(row.info is not None for row in masters)
    topics = list(topic_gateway.all().values()) if all_answer else []
    normal = [topic for topic in topics if topic.kind is TopicKind.NORMAL]
    groups = [g for g in group_gateway.all().values() if not g.is_system] if all_answer else []
    looked_at = normal[:LOOKED_AT_MAX]
    traffic = topic_gateway.traffic([topic.name for topic in looked_at]) if looked_at else {}
    names = [group.name for group in groups[:LOOKED_AT_MAX]]
    progresses = group_gateway.progress_of(names) if names else {}
    connections = group_gateway.connections_of(names) if names else {}
    group_rows = sorted(
        (GroupRow(progresses[name], connections[name]) for name in names),
        key=lambda row: (-row.progress.lag, row.progress.group),
    )
    topic_rows = sorted(
        (TopicRow(topic, traffic[topic.name]) for topic in looked_at),
        key=lambda row: (
            -row.traffic.minute_tps,
            -(row.traffic.day_sum or row.traffic.hour_sum or 0),
            row.topic.name,
        ),
    )
    return Summary(
        brokers=brokers,
        put_tps=total(masters, "put_tps"),
        get_tps=total(counted, "get_tps"),
        put_today=total(masters, "put_today"),
        get_today=total(counted, "get_today"),
        topics=tuple(topic_rows[:ROWS_MAX]),
        topic_count=len(normal),
        groups=tuple(group_rows[:ROWS_MAX]),
        group_count=len(groups),
        lag=sum(row.progress.lag for row in group_rows),
        is_complete=all_answer,
        findings=(
            *findings(brokers),
            *group_findings(group_rows, verdicts),
            *replication_findings(sets),
        ),
        verdicts=tuple(verdicts),
        looked_at_some=max(len(normal), len(groups)) > LOOKED_AT_MAX,
        sets=sets,
        name_server=cluster.name_server,
        read_at_ms=cluster.read_at_ms,
    )


def total(rows: Iterable[BrokerRow], name: str) -> Total:
    values = []
    for row in rows:
        value = getattr(row.info, name) if row.info else None
        if value is None:
            reason = (
                row.problem.what
                if row.problem
                else _("%(broker)s didn't report this.") % {"broker": row.node.address}
            )
            return Total(None, reason)
        values.append(value)
    return Total(sum(values)) if values else Total(None, _("No brokers are registered."))


def store_findings(row: BrokerRow, info: RuntimeInfo) -> Iterable[Finding]:
    name = row.node.broker_name
    if info.store_refuses is not None:
        yield Finding(
            State.BAD,
            _("%(broker)s isn't accepting messages: %(reason)s.")
            % {"broker": name, "reason": info.store_refuses},
        )
    disk = disk_state(info.commit_log_disk_ratio)
    if disk is not State.OK:
        yield Finding(
            disk,
            _("The disk of %(broker)s is %(percent)d %% full.")
            % {"broker": name, "percent": row.disk_percent},
        )
    if info.damaged_ranges:
        yield Finding(
            State.WARN,
            ngettext(
                "%(broker)s skipped a damaged range of its log. See the broker log for its "
                "location.",
                "%(broker)s skipped %(count)d damaged ranges of its log. See the broker log "
                "for their locations.",
                info.damaged_ranges,
            )
            % {"broker": name, "count": info.damaged_ranges},
        )
    if info.unreachable_messages:
        names = ", ".join(info.unreachable_topics[:TOPICS_NAMED_MAX])
        more = ", …" if len(info.unreachable_topics) > TOPICS_NAMED_MAX else ""
        yield Finding(
            State.WARN,
            ngettext(
                "%(broker)s has %(count)d message that consumers can't read because %(topics)s "
                "is missing from its topics.json. Restore the file from a backup, or rebuild "
                "it with verify --rebuild-topics.",
                "%(broker)s has %(count)d messages that consumers can't read because "
                "%(topics)s is missing from its topics.json. Restore the file from a backup, "
                "or rebuild it with verify --rebuild-topics.",
                info.unreachable_messages,
            )
            % {"broker": name, "count": info.unreachable_messages, "topics": names + more},
        )


def findings(brokers: Iterable[BrokerRow]) -> Iterable[Finding]:
    brokers = list(brokers)
    if not brokers:
        yield Finding(State.BAD, _("No brokers are registered with the name server."))
    elif not any(row.node.is_master for row in brokers):
        yield Finding(State.BAD, _("No master is registered, so messages can't be sent."))
    for row in brokers:
        if not row.is_confirmed:
            yield Finding(
                State.WARN if any(each.is_confirmed for each in brokers) else State.BAD,
                _("Broker %(broker)s at %(address)s hasn't been confirmed.")
                % {"broker": row.node.broker_name, "address": row.node.address},
            )
        elif row.info is None:
            what = (
                row.problem.what if row.problem else _("The broker didn't report any statistics.")
            )
            yield Finding(State.BAD, what)
        else:
            yield from store_findings(row, row.info)


def group_findings(groups: Iterable[GroupRow], verdicts: Iterable[Shown]) -> Iterable[Finding]:
    """Return the groups without consumers, except those that a rule already reports."""
    reported = {each.verdict.name for each in verdicts if each.verdict.rule == NO_CONSUMER_RULE}
    left_alone = [
        row.progress.group
        for row in groups
        if row.state is not State.OK and row.progress.group not in reported
    ]
    if left_alone:
        yield no_consumers_finding(left_alone)
