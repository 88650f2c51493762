"""The list of groups: its filters, its order, and the history in its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, gettext_lazy

from console.broker.configs.labels import owner_in
from console.broker.groups.states import group_states
from console.gateway.access import gateway
from console.lib.lists import Chip
from console.lib.moment import now_ms
from console.lib.tables import Column
from console.observe.history.metrics import GROUP, LAG
from console.observe.history.reading import last_of, sparks
from console.observe.history.series import Aspect, Line
from console.observe.overview.states import has_no_consumers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from console.broker.configs.models import Label
    from console.broker.groups.states import GroupState, GroupStates
    from console.gateway.answers import ConsumeProgress, Group, GroupConnections
    from console.lib.tables import Table
    from console.observe.history.reading import Spark

OWN, SYSTEM = "own", "system"

COLUMNS = (
    Column("group", gettext_lazy("Group"), is_sorted=True),
    Column("owner", gettext_lazy("Owner"), is_sorted=True, is_extra=True),
    Column("state", gettext_lazy("State"), is_fact=True),
    Column("reading", gettext_lazy("Consumption"), is_sorted=True, is_fact=True),
    Column("members", gettext_lazy("Consumers"), is_number=True, is_fact=True),
    Column("topics", gettext_lazy("Topics"), is_number=True, css="muted"),
    Column("trend", gettext_lazy("Trend"), "1 h", css="spark-cell"),
    Column(
        "lag",
        gettext_lazy("Lag"),
        gettext_lazy("msg"),
        is_number=True,
        is_sorted=True,
        is_fact=True,
    ),
    Column("consumed", gettext_lazy("Consumed"), gettext_lazy("msg/s"), is_number=True),
    Column("last", gettext_lazy("Store time of the last consumed message")),
)

PEAK_LAG = Line("lag", LAG, Aspect.PEAK)


@dataclass(frozen=True, slots=True)
class FoundGroups:
    """The groups of the chosen kind, and a chip with a count for each kind."""

    shown: Sequence[Group]
    kind: str
    chips: Sequence[Chip]


@dataclass(frozen=True, slots=True)
class ListHistory:
    """States, and lags by group name; the lags are empty if only the current page needs them."""

    states: GroupStates
    lags: Mapping[str, Spark]

    @classmethod
    def to_sort(cls, table: Table, groups: Sequence[Group]) -> ListHistory:
        """Return the history of all groups that the table's order depends on."""
        names = [group.name for group in groups]
        lags = lags_of(names) if table.sort_name in {"lag", "reading"} else {}
        return cls(group_states(now_ms()), lags)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A row of the list."""

    group: Group
    connections: GroupConnections
    progress: ConsumeProgress
    lag: Spark | None
    reading: GroupState
    label: Label | None = None

    @property
    def is_abandoned(self) -> bool:
        return has_no_consumers(self.progress, self.connections)


def lags_of(names: Sequence[str]) -> Mapping[str, Spark]:
    return sparks(GROUP, names, PEAK_LAG, now_ms())


def found_groups(matching: Sequence[Group], kind: str) -> FoundGroups:
    """Return the matching groups of a kind; client groups by default."""
    kind = SYSTEM if kind == SYSTEM else OWN
    shown = [group for group in matching if group.is_system == (kind == SYSTEM)]
    system_count = sum(group.is_system for group in matching)
    chips = [
        Chip(OWN, _("Client groups"), len(matching) - system_count),
        Chip(SYSTEM, _("System"), system_count),
    ]
    return FoundGroups(shown, kind, chips)


def sorted_groups(
    table: Table, groups: Sequence[Group], history: ListHistory, labels: Mapping[str, Label]
) -> list[Group]:
    """Return groups in the table's order."""
    return table.sorted(
        groups,
        {
            "group": lambda group: group.name.lower(),
            "owner": lambda group: owner_in(labels.get(group.name)),
            "reading": lambda group: (
                history.states.rank(group.name, history.lags.get(group.name)),
                group.name.lower(),
            ),
            "lag": lambda group: last_of(history.lags.get(group.name)),
        },
    )


def group_rows(
    groups: Sequence[Group], history: ListHistory, labels: Mapping[str, Label]
) -> list[GroupRow]:
    """Return the rows of a page, with consumers, progress and history."""
    names = [group.name for group in groups]
    connections = gateway().groups.connections_of(names) if names else {}
    progresses = gateway().groups.progress_of(names) if names else {}
    lags = history.lags or lags_of(names)
    return [
        GroupRow(
            group,
            connections[group.name],
            progresses[group.name],
            lags.get(group.name),
            history.states.of(
                group.name,
                has_committed=progresses[group.name].has_committed,
                lag=lags.get(group.name),
                is_abandoned=has_no_consumers(progresses[group.name], connections[group.name]),
            ),
            labels.get(group.name),
        )
        for group in groups
    ]
