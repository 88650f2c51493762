"""Broker sets: each master with its slaves, their delay, and the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from console.gateway.answers import Replication
from console.gateway.errors import GatewayError
from console.observe.overview.states import Finding, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from console.gateway.answers import BrokerNode, Cluster, SlaveLink

BEHIND_MS_WARN = 30_000
"""A slave that has been behind for this long isn't about to catch up."""


@dataclass(frozen=True, slots=True)
class SlaveRow:
    """A slave: its own report, and its connection as seen by the master."""

    node: BrokerNode
    report: Replication | None
    link: SlaveLink | None
    problem: str
    """Why it isn't replicating, or why its state is unknown; empty if all is well."""

    @property
    def behind_s(self) -> float | None:
        return _seconds(self.link.behind_ms if self.link else None)

    @property
    def last_contact_s(self) -> float | None:
        return _seconds(self.link.last_contact_ms if self.link else None)

    @property
    def state(self) -> State:
        if self.report is None or not self.report.is_following:
            return State.BAD
        if self.link is None:
            return State.WARN
        is_late = self.link.behind_ms is not None and self.link.behind_ms > BEHIND_MS_WARN
        return State.WARN if is_late or self.problem else State.OK


@dataclass(frozen=True, slots=True)
class BrokerSet:
    """A broker name: its master, if registered, and its slaves."""

    broker_name: str
    master: BrokerNode | None
    report: Replication | None
    problem: str
    """Why the master's state is unknown."""
    slaves: tuple[SlaveRow, ...]
    read_at_ms: int

    @property
    def state(self) -> State:
        return State.OK if self.report is not None else State.BAD


def sets_of(
    cluster: Cluster, report: Mapping[str, Replication | GatewayError]
) -> tuple[BrokerSet, ...]:
    """Return the sets with a slave, in the order of the brokers."""
    nodes = cluster.in_sets
    found = []
    for broker_name in dict.fromkeys(node.broker_name for node in nodes):
        members = [node for node in nodes if node.broker_name == broker_name]
        master = next((node for node in members if node.is_master), None)
        answer = None if master is None else report.get(master.address)
        of_master = answer if isinstance(answer, Replication) else None
        links = {} if of_master is None else {link.address: link for link in of_master.links}
        slaves = [node for node in members if not node.is_master]
        found.append(
            BrokerSet(
                broker_name,
                master,
                of_master,
                answer.what if isinstance(answer, GatewayError) else "",
                tuple(_slave_row(node, report.get(node.address), links) for node in slaves),
                cluster.read_at_ms,
            )
        )
    return tuple(found)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _slave_row(
    node: BrokerNode,
    answer: Replication | GatewayError | None,
    links: Mapping[str, SlaveLink],
) -> SlaveRow:
    if not isinstance(answer, Replication):
        problem = answer.what if answer is not None else _("The slave wasn't queried.")
        return SlaveRow(node, None, None, problem)
    link = links.get(answer.local_address)
    problem = ""
    if not answer.is_following:
        problem = answer.reason or _("The slave has no master: no name server lists one.")
    elif answer.metadata_failures:
        problem = _("Not replicated: %(what)s") % {"what": "; ".join(answer.metadata_failures)}
    return SlaveRow(node, answer, link, problem)


def replication_findings(sets: Iterable[BrokerSet]) -> Iterable[Finding]:
    """Return the sets' problems: each slave that isn't in sync with its master."""
    for one in sets:
        for row in one.slaves:
            names = {"broker": one.broker_name, "id": row.node.broker_id}
            if row.report is None:
                continue  # Brokers that don't respond are reported anyway.
            if not row.report.is_following:
                yield Finding(
                    State.BAD,
                    _("Slave %(id)d of %(broker)s isn't following its master: %(why)s")
                    % {**names, "why": row.problem},
                )
            elif row.state is not State.OK and row.problem:
                yield Finding(
                    State.WARN,
                    _("Slave %(id)d of %(broker)s: %(why)s") % {**names, "why": row.problem},
                )
            elif row.state is not State.OK and row.link is not None:
                yield Finding(
                    State.WARN,
                    _("Slave %(id)d of %(broker)s is %(seconds)d s behind its master.")
                    % {**names, "seconds": (row.link.behind_ms or 0) // 1000},
                )
