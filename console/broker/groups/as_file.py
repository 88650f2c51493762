"""The list of groups as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.lib.moment import now_ms
from console.lib.table_file import csv_file
from console.observe.history.metrics import GROUP, LAG, LAG_AGE, MEMBERS
from console.observe.history.reading import last_of, sparks
from console.observe.history.series import Aspect, Line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpResponse

    from console.broker.groups.states import GroupStates
    from console.gateway.answers import Group

HEAD = (
    "group",
    "reading",
    "members",
    "lag",
    "oldest_unread_ms",
    "may_consume",
    "broadcast",
    "retries_at_most",
    "retry_queues",
    "brokers",
)


def groups_file(groups: Sequence[Group], states: GroupStates) -> HttpResponse:
    names = [group.name for group in groups]
    metrics = (MEMBERS, LAG, LAG_AGE)
    pasts = [sparks(GROUP, names, Line("", metric, Aspect.PEAK), now_ms()) for metric in metrics]

    def row(group: Group) -> tuple[object, ...]:
        members, lag, age = (last_of(past.get(group.name)) for past in pasts)
        past = pasts[metrics.index(LAG)].get(group.name)
        reading = states.of(
            group.name,
            has_committed=lag is not None,
            lag=past,
            is_abandoned=bool(lag) and members == 0,
        ).reading
        config = group.config
        values: tuple[object, ...] = (None, None, None, None)
        if config is not None:
            values = (
                config.consume_enable,
                config.consume_broadcast_enable,
                config.retry_max_times,
                config.retry_queue_nums,
            )
        figures = (None if each is None else round(each) for each in (members, lag, age))
        state = None if reading is None else reading.value
        return group.name, state, *figures, *values, " ".join(group.configs)

    return csv_file("groups", HEAD, map(row, groups))
