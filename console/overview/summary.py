"""The summary of all brokers: figures, the groups that lag, the busiest topics, one verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, ngettext

from console.gateway.answers import RuntimeInfo, TopicKind
from console.gateway.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.gateway.answers import (
        BrokerNode,
        ConsumeProgress,
        GroupConnections,
        Topic,
        Traffic,
    )
    from console.gateway.gateway import BrokerGateway

DISK_RATIO_WARN = 0.75
DISK_RATIO_BAD = 0.85  # RocketMQ starts to delete early here, refuses writes at 0.90
LAG_WITHOUT_MEMBERS_WARN = 1
ROWS_MAX = 8
# Each costs a request a refresh; beyond it the page says that it looked at some only.
LOOKED_AT_MAX = 300


class State(StrEnum):
    """How something is, from best to worst."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why the verdict is not good."""

    state: State
    text: str


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker with its figures, or with why there are none."""

    node: BrokerNode
    info: RuntimeInfo | None
    problem: GatewayError | None

    @property
    def state(self) -> State:
        if self.info is None:
            return State.BAD
        return disk_state(self.info.commit_log_disk_ratio)

    @property
    def disk_percent(self) -> int | None:
        ratio = self.info.commit_log_disk_ratio if self.info else None
        return None if ratio is None else round(ratio * 100)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group with its backlog."""

    progress: ConsumeProgress
    connections: GroupConnections

    @property
    def state(self) -> State:
        is_left_alone = not self.connections.is_online and self.progress.lag > 0
        return State.WARN if is_left_alone else State.OK


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic with what was put into it."""

    topic: Topic
    traffic: Traffic


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over brokers; None, with the reason, when one of them did not say."""

    value: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """All that the overview shows."""

    brokers: tuple[BrokerRow, ...]
    put_tps: Total
    get_tps: Total
    put_today: Total
    get_today: Total
    topics: tuple[TopicRow, ...]
    topic_count: int
    groups: tuple[GroupRow, ...]
    group_count: int
    backlog: int
    is_complete: bool  # every master answered; otherwise topics, groups, backlog are unknown
    findings: tuple[Finding, ...]
    looked_at_some: bool
    name_server: str
    read_at_ms: int

    @property
    def is_empty(self) -> bool:
        """Say whether nothing has ever been sent or subscribed here."""
        return self.is_complete and not self.topic_count and not self.group_count

    @property
    def state(self) -> State:
        states = {finding.state for finding in self.findings}
        if State.BAD in states:
            return State.BAD
        return State.WARN if State.WARN in states else State.OK

    @property
    def verdict(self) -> str:
        if self.findings:
            worst = [finding for finding in self.findings if finding.state == self.state]
            return worst[0].text
        brokers = len(self.brokers)
        answered = ngettext("%(count)d broker answers", "All %(count)d brokers answer", brokers) % {
            "count": brokers
        }
        if not self.group_count:
            return _("%(answered)s; no group consumes yet.") % {"answered": answered}
        if self.backlog:
            return _("%(answered)s; every group with a backlog is being served.") % {
                "answered": answered
            }
        return _("%(answered)s; no group lags behind.") % {"answered": answered}


def disk_state(ratio: float | None) -> State:
    if ratio is None or ratio < DISK_RATIO_WARN:
        return State.OK
    return State.WARN if ratio < DISK_RATIO_BAD else State.BAD


def summarize(gateway: BrokerGateway) -> Summary:
    """Ask everything the overview shows.

    Raises:
        GatewayError: no name server answers. A broker that does not is part of the summary.
    """
    cluster = gateway.cluster()
    runtime = gateway.runtime() if cluster.nodes else {}
    brokers = tuple(
        BrokerRow(
            node,
            found if isinstance(found := runtime.get(node.address), RuntimeInfo) else None,
            found if isinstance(found, GatewayError) else None,
        )
        for node in cluster.nodes
    )
    masters = [row for row in brokers if row.node.is_master]
    all_answer = bool(masters) and all(row.info is not None for row in masters)
    topics = list(gateway.topics().values()) if all_answer else []
    normal = [topic for topic in topics if topic.kind is TopicKind.NORMAL]
    groups = [g for g in gateway.groups().values() if not g.is_system] if all_answer else []
    looked_at = normal[:LOOKED_AT_MAX]
    traffic = gateway.topic_traffic([topic.name for topic in looked_at]) if looked_at else {}
    names = [group.name for group in groups[:LOOKED_AT_MAX]]
    progresses = gateway.progresses(names) if names else {}
    connections = gateway.online_groups(names) if names else {}
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
        get_tps=total(brokers, "get_tps"),
        put_today=total(masters, "put_today"),
        get_today=total(brokers, "get_today"),
        topics=tuple(topic_rows[:ROWS_MAX]),
        topic_count=len(normal),
        groups=tuple(group_rows[:ROWS_MAX]),
        group_count=len(groups),
        backlog=sum(row.progress.lag for row in group_rows),
        is_complete=all_answer,
        findings=tuple(findings(brokers, group_rows)),
        looked_at_some=max(len(normal), len(groups)) > LOOKED_AT_MAX,
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
                else _("%(broker)s did not say.") % {"broker": row.node.address}
            )
            return Total(None, reason)
        values.append(value)
    return Total(sum(values)) if values else Total(None, _("No broker is registered."))


def findings(brokers: Iterable[BrokerRow], groups: Iterable[GroupRow]) -> Iterable[Finding]:
    brokers = list(brokers)
    if not brokers:
        yield Finding(State.BAD, _("No broker is registered at the name server."))
    elif not any(row.node.is_master for row in brokers):
        yield Finding(State.BAD, _("No master is registered: nothing can be sent."))
    for row in brokers:
        if row.info is None:
            what = row.problem.what if row.problem else _("It gave no figures.")
            yield Finding(State.BAD, what)
        elif row.state is not State.OK:
            yield Finding(
                row.state,
                _("The disk of %(broker)s is %(percent)d %% full.")
                % {"broker": row.node.broker_name, "percent": row.disk_percent},
            )
    left_alone = [row for row in groups if row.state is not State.OK]
    if left_alone:
        names = ", ".join(row.progress.group for row in left_alone[:3])
        more = len(left_alone) - 3
        tail = _(" and %(count)d more") % {"count": more} if more > 0 else ""
        yield Finding(
            State.WARN,
            ngettext(
                "%(names)s has a backlog and no member is connected.",
                "%(names)s%(tail)s have a backlog and no members are connected.",
                len(left_alone),
            )
            % {"names": names, "tail": tail},
        )
