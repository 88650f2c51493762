"""A change of a configuration file as a plan: its entries, its consequences, and how to apply it.

The broker remains the only writer of the file: each changed entry is sent to it as one request.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, ngettext

from console.broker.configs.plan import Plan
from console.broker.files.costing import Costs, PlanRefusedError, status_of
from console.broker.files.delays import OFFSET, advanced, delay_costs
from console.broker.files.entries import entries_in
from console.broker.files.filters import filter_costs, filter_of
from console.broker.files.rights import objections
from console.broker.files.schema import AT, group_config, is_brokers_own, topic_config
from console.broker.topics.shrinking import objection as shrinking_objection
from console.gateway.access import gateway
from console.gateway.errors import GatewayError, NotFoundError
from console.gateway.files import ConfigFile
from console.lib.lists import shorten
from console.lib.stored import BrokerQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from console.broker.configs.plan import State, Values
    from console.broker.files.entries import Entries
    from console.gateway.answers import QueueStatus

KIND = "config"
SEPARATOR = " · "


def subject_of(broker_name: str, file: ConfigFile) -> str:
    return f"{broker_name}{SEPARATOR}{file}"


def subject_in(text: str) -> tuple[str, ConfigFile]:
    """Return the broker and the file of a subject.

    Raises:
        ValueError: the subject isn't a broker's file.
    """
    broker_name, _separator, file = text.partition(SEPARATOR)
    return broker_name, ConfigFile(file)


def read(broker_name: str, file: ConfigFile) -> Entries:
    """Return a file's current entries from the broker.

    Raises:
        GatewayError: the broker didn't respond, or doesn't report this file.
    """
    document = gateway().files.read(file, [broker_name])[broker_name]
    if document is None:
        raise GatewayError(
            _("%(broker)s doesn't report its %(file)s.") % {"broker": broker_name, "file": file},
            _("Apache RocketMQ brokers don't support this request."),
        )
    return entries_in(file, document)


def merge(base: Entries, mine: Entries, now: Entries) -> State:
    """Return the wanted state of each entry that differs between `base` and `mine`.

    Keys that were not edited keep their current values.
    """
    wanted: State = {}
    for name in {**mine, **base}:
        before, after = base.get(name), mine.get(name)
        if before == after:
            continue
        if before is None or after is None:
            wanted[name] = after
            continue
        touched = {
            key: after.get(key) for key in {**before, **after} if before.get(key) != after.get(key)
        }
        kept = {**now.get(name, {}), **touched}
        wanted[name] = {key: value for key, value in kept.items() if value is not None}
    return wanted


def plan_of(
    broker_name: str,
    file: ConfigFile,
    seen: Mapping[str, Values | None],
    now: Mapping[str, Values | None],
    wanted: State,
) -> Plan:
    """Return the plan for some entries of a file."""
    if file is ConfigFile.DELAYS:
        seen = advanced(seen, now, wanted)
    return Plan(
        subject_of(broker_name, file),
        {name: seen.get(name) for name in wanted},
        {name: now.get(name) for name in wanted},
        wanted,
        kind=KIND,
    )


def own_names(broker_name: str) -> frozenset[str]:
    """Return the names of a broker and its cluster, each of which has a topic of that name."""
    nodes = gateway().cluster.registered().masters
    return frozenset(
        name
        for node in nodes
        if node.broker_name == broker_name
        for name in (node.cluster_name, node.broker_name)
    )


def refusals(file: ConfigFile, plan: Plan, own: frozenset[str]) -> list[str]:
    """Return reasons why requests can't make a plan's changes."""
    found = []
    for name, wanted in plan.wanted.items():
        now = plan.now.get(name)
        if wanted == now:
            continue
        if is_brokers_own(file, name, own):
            found.append(
                _("%s is internal to the broker and can't be changed by a request.") % name
            )
        elif file is ConfigFile.OFFSETS:
            found += offset_refusals(name, now, wanted)
    return found + objections(file, touched_in(plan))


def touched_in(plan: Plan) -> list[str]:
    """Return the names of the entries that a plan creates, changes and deletes."""
    return [name for names in changed_of(plan).values() for name in names]


def offset_refusals(name: str, now: Values | None, wanted: Values | None) -> list[str]:
    gone = sorted((now or {}).keys() - (wanted or {}).keys(), key=int)
    if gone:
        text = _(
            "%(name)s: you can't delete only the offset of queue %(queue)s. Delete the group with "
            "its offsets on the group's page."
        )
        return [text % {"name": name, "queue": gone[0]}]
    return []


def costs(broker_name: str, file: ConfigFile, plan: Plan) -> Costs:
    """Return the consequences of a plan, with counts.

    Raises:
        PlanRefusedError: the plan can't be applied.
    """
    refused = refusals(file, plan, own_names(broker_name))
    if refused:
        raise PlanRefusedError(refused)
    match file:
        case ConfigFile.TOPICS:
            return topic_costs(broker_name, plan)
        case ConfigFile.GROUPS:
            return group_costs(plan)
        case ConfigFile.OFFSETS:
            return offset_costs(broker_name, plan)
        case ConfigFile.DELAYS:
            return delay_costs(broker_name, plan)
        case ConfigFile.FILTERS:
            return filter_costs(broker_name, plan)


def topic_costs(broker_name: str, plan: Plan) -> Costs:
    sentences = []
    stored, gone = 0, []
    for name, wanted in plan.wanted.items():
        now = plan.now.get(name)
        if now is None or wanted == now:
            continue
        if wanted is None:
            gone.append(name)
            stored += sum(row.message_count for row in status_of(name, broker_name).values())
            continue
        befores = {broker_name: topic_config(name, now)}
        text = shrinking_objection(befores, topic_config(name, wanted))
        if text is not None:
            sentences.append(f"{name}: {text}")
    if gone:
        text = ngettext(
            "%(count)d topic will be deleted from %(broker)s, with %(stored)d messages: %(names)s.",
            "%(count)d topics will be deleted from %(broker)s, with %(stored)d messages: "
            "%(names)s.",
            len(gone),
        )
        values = {"count": len(gone), "broker": broker_name, "stored": stored}
        sentences.append(text % (values | {"names": shorten(gone)}))
    return Costs(tuple(sentences), is_final=stored > 0)


def group_costs(plan: Plan) -> Costs:
    gone = [name for name, wanted in plan.wanted.items() if wanted is None and plan.now.get(name)]
    connections = gateway().groups.connections_of(gone) if gone else {}
    online = [name for name in gone if connections[name].is_online]
    if online:
        raise PlanRefusedError(
            [
                _(
                    "%s has connected consumers. Stop them first; otherwise they recreate the "
                    "group immediately."
                )
                % name
                for name in online
            ]
        )
    if not gone:
        return Costs((), is_final=False)
    text = ngettext(
        "%(count)d group loses its configuration but keeps its offsets: %(names)s.",
        "%(count)d groups lose their configuration but keep their offsets: %(names)s.",
        len(gone),
    )
    return Costs((text % {"count": len(gone), "names": shorten(gone)},), is_final=False)


def offset_costs(broker_name: str, plan: Plan) -> Costs:
    refused: list[str] = []
    skipped = repeated = 0
    for name, wanted in plan.wanted.items():
        topic, _at, _group = name.partition(AT)
        now = plan.now.get(name) or {}
        try:
            ends = status_of(topic, broker_name)
        except NotFoundError:
            refused.append(_("%(name)s: no broker has this topic.") % {"name": name})
            continue
        for queue, offset in (wanted or {}).items():
            if offset == now.get(queue):
                continue
            row = ends.get(int(queue))
            if row is None or not row.min_offset <= int(offset) <= row.max_offset:
                refused.append(out_of_range(name, queue, row))
                continue
            old = now.get(queue)
            if old is not None:
                skipped += max(0, int(offset) - max(int(old), row.min_offset))
                repeated += max(0, min(int(old), row.max_offset) - int(offset))
    if refused:
        raise PlanRefusedError(refused)
    if not skipped and not repeated:
        return Costs((), is_final=False)
    text = ngettext(
        "%(repeated)d message will be redelivered, %(skipped)d skipped.",
        "%(repeated)d messages will be redelivered, %(skipped)d skipped.",
        repeated,
    )
    return Costs((text % {"repeated": repeated, "skipped": skipped},), is_final=False)


def out_of_range(name: str, queue: str, row: QueueStatus | None) -> str:
    if row is None:
        return _("%(name)s: the topic has no queue %(queue)s on this broker.") % {
            "name": name,
            "queue": queue,
        }
    text = _("%(name)s: queue %(queue)s has offsets from %(low)d to %(high)d.")
    return text % {"name": name, "queue": queue, "low": row.min_offset, "high": row.max_offset}


def carry_out(broker_name: str, file: ConfigFile, plan: Plan, done: Callable[[str], None]) -> None:
    """Send each entry to the broker, deletions last; call `done` after each one.

    Raises:
        GatewayError: the broker rejected an entry; the remaining ones were not sent.
    """
    for name, step in steps(broker_name, file, plan):
        step()
        done(name)


def steps(
    broker_name: str, file: ConfigFile, plan: Plan
) -> Iterator[tuple[str, Callable[[], None]]]:
    changed = [name for name, wanted in plan.wanted.items() if wanted != plan.now.get(name)]
    online: dict[str, bool] = {}
    if file is ConfigFile.OFFSETS:
        groups = sorted({name.partition(AT)[2] for name in changed})
        found = gateway().groups.connections_of(groups) if groups else {}
        online = {group: each.is_online for group, each in found.items()}
    for name in sorted(changed, key=lambda each: plan.wanted[each] is None):
        yield name, step_of(broker_name, file, name, plan, online)


def step_of(
    broker_name: str, file: ConfigFile, name: str, plan: Plan, online: dict[str, bool]
) -> Callable[[], None]:
    wanted, brokers = plan.wanted[name], gateway()
    if file is ConfigFile.TOPICS:
        if wanted is None:
            return lambda: brokers.files.drop_topic(name, broker_name)
        topic = topic_config(name, wanted)
        return lambda: brokers.topics.save(topic, [broker_name])
    if file is ConfigFile.GROUPS:
        if wanted is None:
            return lambda: brokers.files.drop_group(name, broker_name)
        group = group_config(name, wanted)
        return lambda: brokers.groups.save(group, [broker_name])
    if file is ConfigFile.DELAYS:
        assert wanted is not None, "costs refuse it"
        level, offset = int(name), int(wanted[OFFSET])
        return lambda: brokers.files.move_delay(level, offset, broker_name)
    topic_name, _at, group_name = name.partition(AT)
    if file is ConfigFile.FILTERS:
        if wanted is None:
            return lambda: brokers.files.drop_filter(group_name, topic_name, broker_name)
        made = filter_of(name, wanted)
        return lambda: brokers.files.save_filter(made, broker_name)
    now = plan.now.get(name) or {}
    moves = {
        BrokerQueue(broker_name, int(queue)): int(offset)
        for queue, offset in (wanted or {}).items()
        if now.get(queue) != offset
    }
    move = brokers.offsets.move_online if online.get(group_name) else brokers.offsets.commit
    return lambda: move(group_name, topic_name, moves)


def changed_of(plan: Plan) -> dict[str, list[str]]:
    """Return the names of the entries that a plan creates, changes and deletes."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, wanted in plan.wanted.items():
        now = plan.now.get(name)
        if now != wanted:
            found["create" if now is None else "delete" if wanted is None else "change"].append(
                name
            )
    return dict(found)
