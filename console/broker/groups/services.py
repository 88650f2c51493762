"""Groups: find, create, change and delete them, for the pages and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from console.broker.configs.services import ConfigService, Requests, Words, state_of
from console.broker.groups.forms import GroupForm
from console.broker.groups.members import MEMBERS_QUERIED_MAX, Subscriptions, subscriptions_of
from console.gateway.access import gateway
from console.gateway.answers import GroupConfig
from console.lib.missing import MissingError
from console.lib.stored import BrokerQueue
from console.ui.danger import Choice, Danger, Effect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.http import HttpRequest

    from console.gateway.answers import Group, GroupConnections, Member, QueueProgress
    from console.gateway.errors import GatewayError
    from console.gateway.running import RunningInfo
    from console.people.audit.models import Entry

WORDS = Words(
    plural=gettext_lazy("Groups"),
    new=gettext_lazy("New subscription group"),
    created=gettext_lazy("Group %(name)s was created."),
    edit=gettext_lazy("Edit group"),
    changed=gettext_lazy("Group %(name)s was changed."),
    deleted=gettext_lazy("Group %(name)s was deleted."),
    undone=gettext_lazy("Group %(name)s was restored."),
)


def get_group(name: str) -> Group:
    """Return a group by name, or the 404 page."""
    group = gateway().groups.all().get(name)
    if group is None:
        raise MissingError(
            _(
                "No broker has a group named %(name)s. It may have been deleted. Names are "
                "case-sensitive."
            )
            % {"name": name}
        )
    return group


def every() -> Mapping[str, Group]:
    return gateway().groups.all()


def save(config: GroupConfig, broker_names: Sequence[str]) -> None:
    gateway().groups.save(config, broker_names)


def remove(group: str) -> None:
    gateway().groups.delete(group, remove_offset=False)


def in_use(group: str) -> str | None:
    """Return why a group with consumers can't be deleted."""
    if not gateway().groups.connections(group).is_online:
        return None
    return _(
        "Group %(group)s has connected consumers. Stop them first; otherwise they recreate the "
        "group immediately."
    ) % {"group": group}


def put_back(entry: Entry) -> None:
    """Restore the consumer offsets that a deletion removed, unless there are new ones."""
    if not (entry.after or {}).get("remove_offset"):
        return
    known = gateway().topics.all()
    now = {(row.topic, row.queue) for row in committed(entry.subject)}
    wanted: dict[str, dict[BrokerQueue, int]] = {}
    for each in entry.before["offsets"]:
        queue = BrokerQueue(each["broker"], each["queue"])
        is_there = each["topic"] in known and queue.broker_name in known[each["topic"]].configs
        if is_there and (each["topic"], queue) not in now:
            wanted.setdefault(each["topic"], {})[queue] = int(each["offset"])
    for topic, offsets in wanted.items():
        gateway().offsets.commit(entry.subject, topic, offsets)


def danger_of(group: Group) -> Danger:
    """Return the effects of deleting a group, and the required confirmation."""
    kept = committed(group.name)
    topics = len({row.topic for row in kept})
    return Danger(
        title=_("Delete group %(name)s?") % {"name": group.name},
        text=_(
            "The brokers delete the group's configuration. If you delete its consumer offsets "
            "too, new consumers start where their own settings say."
        ),
        effects=(
            Effect(_("Configurations"), len(group.configs), ", ".join(group.configs)),
            Effect(
                _("Consumer offsets"),
                len(kept),
                ngettext(
                    "in %(count)d topic; kept unless you choose to delete them",
                    "in %(count)d topics; kept unless you choose to delete them",
                    topics,
                )
                % {"count": topics},
            ),
            Effect(_("Unread messages"), sum(row.lag or 0 for row in kept)),
        ),
        choices=(Choice("remove_offset", _("Delete consumer offsets too")),),
        # Without a configuration there is nothing that could be recreated.
        name="" if group.configs else group.name,
        undo=_("This can't be undone.")
        if not group.configs
        else _("You can undo this as long as no one recreates the group."),
        action=_("Delete group"),
        keep=_("Cancel"),
        address=reverse("groups:delete", args=[group.name]),
        back=reverse("groups:detail", args=[group.name]),
        refusal=in_use(group.name) or "",
    )


def offset_snapshot(group: str) -> list[dict[str, Any]]:
    """Return a group's consumer offsets in the audit log's format."""
    return [
        {
            "topic": row.topic,
            "broker": row.broker_name,
            "queue": row.queue_id,
            "offset": str(row.consumer_offset),
        }
        for row in committed(group)
    ]


def committed(group: str) -> list[QueueProgress]:
    """Return the queues in which a group has a consumer offset."""
    queues = gateway().groups.progress(group).queues
    return [row for row in queues if row.consumer_offset is not None]


def get_member(group: str, client_id: str) -> Member:
    """Return a connected consumer of a group, or the 404 page."""
    members = gateway().groups.connections(group).members
    found = next((each for each in members if each.client_id == client_id), None)
    if found is None:
        raise MissingError(
            _("Group %(group)s has no consumer %(client)s right now.")
            % {"group": group, "client": client_id or "?"}
        )
    return found


def get_place(group: str, topic: str, queue: BrokerQueue) -> QueueProgress:
    """Return a group's progress in a queue, or the 404 page."""
    rows = gateway().groups.progress(group).queues
    row = next((each for each in rows if each.topic == topic and each.queue == queue), None)
    if row is None:
        raise MissingError(
            _("Group %(group)s has no offset in queue %(queue)s of %(topic)s.")
            % {"group": group, "queue": queue, "topic": topic}
        )
    return row


GROUPS = ConfigService(
    "group",
    WORDS,
    GroupForm,
    GroupConfig,
    Requests(every, save, remove, in_use, put_back=put_back),
)


def delete_group(request: HttpRequest, subject: Group, *, remove_offset: bool) -> Entry:
    """Delete a group, with or without its offsets, under an audit entry.

    Raises:
        GatewayError: a broker refused.
    """
    name = subject.name
    return GROUPS.deleted(
        request,
        name,
        lambda: gateway().groups.delete(name, remove_offset=remove_offset),
        {"configs": state_of(subject), "offsets": offset_snapshot(name)},
        {"remove_offset": remove_offset},
    )


def compare_subscriptions(group: str) -> tuple[GroupConnections, Subscriptions]:
    """Return a group's connections, and the subscriptions that its consumers report."""
    connections = gateway().groups.connections(group)
    asked = connections.members[:MEMBERS_QUERIED_MAX]
    infos = gateway().groups.running(group, asked) if asked else {}
    return connections, subscriptions_of(connections, infos)


def member_status(group: str, member: Member, *, with_threads: bool) -> RunningInfo | GatewayError:
    """Return a consumer's own report, or the error that prevented it."""
    infos = gateway().groups.running(group, [member], with_threads=with_threads)
    return infos[member.client_id]
