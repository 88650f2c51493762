"""Changes of consumer filters: the effect on each group, as the broker compiles the expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, ngettext

from console.broker.files.costing import Costs, PlanRefusedError, status_of
from console.broker.files.schema import AT, FILTER_KEYS, attributes
from console.gateway.access import gateway
from console.gateway.errors import NotFoundError
from console.gateway.files import ConfigFile, GroupFilter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from console.broker.configs.plan import Plan, Values
    from console.broker.files.entries import Entries


def filter_of(name: str, values: Values) -> GroupFilter:
    """Return the filter of an entry, which is named topic@group."""
    topic, _at, group = name.partition(AT)
    return GroupFilter(group, topic, **attributes(FILTER_KEYS, values))


def refused_expressions(
    broker_name: str, wanted: Mapping[str, Values | None], now: Entries
) -> Iterator[tuple[str, str]]:
    """Yield entries whose new expression the broker rejects, with the reason."""
    for name, values in wanted.items():
        if values is not None and values != now.get(name):
            reason = gateway().files.check_filter(filter_of(name, values), broker_name)
            if reason:
                text = _("%(name)s: the broker rejected the expression: %(reason)s.")
                yield name, text % {"name": name, "reason": reason.rstrip(".")}


def filter_costs(broker_name: str, plan: Plan) -> Costs:
    """Return the effect on each group's messages.

    Raises:
        PlanRefusedError: an expression is invalid, or its topic doesn't exist.
    """
    now = {name: values for name, values in plan.now.items() if values is not None}
    refused = [said for _name, said in refused_expressions(broker_name, plan.wanted, now)]
    changed = [name for name, wanted in plan.wanted.items() if wanted != plan.now.get(name)]
    groups = sorted({name.partition(AT)[2] for name in changed})
    connections = gateway().groups.connections_of(groups) if groups else {}
    sentences: list[str] = []
    for name in changed:
        is_online = connections[name.partition(AT)[2]].is_online
        if plan.wanted[name] is None:
            sentences.append(deletion_effect(name, is_online=is_online))
            continue
        try:
            sentences += change_effects(broker_name, name, is_online=is_online)
        except NotFoundError:
            refused.append(_("%(name)s: no broker has this topic.") % {"name": name})
    if refused:
        raise PlanRefusedError(refused)
    return Costs(tuple(sentences), is_final=False)


def deletion_effect(name: str, *, is_online: bool) -> str:
    if is_online:
        text = _(
            "%(name)s: the group has connected consumers. Their pulls are rejected until a "
            "consumer's next heartbeat registers its filter again, within 30 seconds."
        )
    else:
        text = _(
            "%(name)s: no consumer is using this filter now. It's recreated when a consumer "
            "subscribes."
        )
    return text % {"name": name}


def change_effects(broker_name: str, name: str, *, is_online: bool) -> Iterator[str]:
    """Yield the effects of a changed expression.

    Raises:
        NotFoundError: no broker has the topic.
    """
    unread = unread_of(broker_name, name)
    text = ngettext(
        "%(name)s: of %(count)d message the group hasn't read here, it only receives those "
        "that match the new expression.",
        "%(name)s: of %(count)d messages the group hasn't read here, it only receives those "
        "that match the new expression.",
        unread,
    )
    yield text % {"name": name, "count": unread}
    if is_online:
        text = _(
            "%(name)s: the group has connected consumers. A consumer that starts or subscribes "
            "again replaces this expression with its own."
        )
    else:
        text = _(
            "%(name)s: no consumer is subscribed now. The next consumer to subscribe replaces this "
            "expression with its own. If no consumer subscribes, the broker deletes the filter "
            "after a day."
        )
    yield text % {"name": name}


def unread_of(broker_name: str, name: str) -> int:
    """Return a group's lag in a topic on a broker."""
    topic, _at, _group = name.partition(AT)
    ends = status_of(topic, broker_name)
    document = gateway().files.read(ConfigFile.OFFSETS, [broker_name])[broker_name] or {}
    queues = (document.get(ConfigFile.OFFSETS.table) or {}).get(name) or {}
    offsets = {int(queue): int(offset) for queue, offset in queues.items()}
    return sum(
        max(0, row.max_offset - max(row.min_offset, offsets.get(queue_id, 0)))
        for queue_id, row in ends.items()
    )
