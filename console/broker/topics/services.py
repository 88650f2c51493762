"""Topics: find, create, change, delete and purge them, for the pages and the API."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from console.broker.configs.services import ConfigService, Requests, Words, state_of
from console.broker.topics.forms import TopicForm
from console.broker.topics.shrinking import objection
from console.gateway.access import gateway
from console.gateway.answers import TopicConfig, TopicKind
from console.lib.lists import shorten
from console.lib.missing import MissingError
from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.http import HttpRequest

    from console.gateway.answers import Topic
    from console.people.audit.models import Entry

WORDS = Words(
    plural=gettext_lazy("Topics"),
    new=gettext_lazy("New topic"),
    created=gettext_lazy("Topic %(name)s was created."),
    edit=gettext_lazy("Edit topic"),
    changed=gettext_lazy("Topic %(name)s was changed."),
    deleted=gettext_lazy("Topic %(name)s was deleted."),
    undone=gettext_lazy("Topic %(name)s was restored."),
)


def get_topic(name: str) -> Topic:
    """Return a topic by name, or the 404 page."""
    topic = gateway().topics.all().get(name)
    if topic is None:
        raise MissingError(
            _(
                "No broker has a topic named %(name)s. It may have been deleted. Names are "
                "case-sensitive."
            )
            % {"name": name}
        )
    return topic


def every() -> Mapping[str, Topic]:
    return gateway().topics.all()


def save(config: TopicConfig, broker_names: Sequence[str]) -> None:
    gateway().topics.save(config, broker_names)


def remove(topic: str) -> None:
    gateway().topics.delete(topic)


def in_use(topic: str) -> str | None:
    """Return why a topic that was just created can't simply be deleted."""
    stored = sum(row.message_count for row in gateway().topics.status(topic))
    if not stored:
        return None
    return ngettext(
        "The topic now holds %(count)d message. To delete it anyway, open the topic's page.",
        "The topic now holds %(count)d messages. To delete them anyway, open the topic's page.",
        stored,
    ) % {"count": stored}


def danger_of(topic: Topic) -> Danger:
    """Return the effects of deleting a topic, and the required confirmation."""
    detail_page = reverse("topics:detail", args=[topic.name])
    status = gateway().topics.status(topic.name)
    groups = gateway().topics.consumers(topic.name)
    connections = gateway().groups.connections_of(groups) if groups else {}
    online = sum(each.is_online for each in connections.values())
    return Danger(
        title=_("Delete topic %(name)s?") % {"name": topic.name},
        text=_(
            "The brokers delete its queues and all consumer offsets in it. They then reject "
            "its producers, unless topic auto-creation is on."
        ),
        effects=(
            Effect(
                _("Messages retained"),
                sum(row.message_count for row in status),
                _("lost permanently"),
                is_bad=True,
            ),
            Effect(_("Queues"), len(status), ", ".join(topic.configs)),
            Effect(_("Groups that lose their offsets here"), len(groups), shorten(groups)),
            Effect(_("Groups with connected consumers"), online, is_bad=True),
        ),
        undo=_("The messages can't be restored. Undo recreates the topic, empty."),
        action=_("Delete topic"),
        keep=_("Cancel"),
        address=reverse("topics:delete", args=[topic.name]),
        back=detail_page,
        name=topic.name,
    )


def purge_danger(topic: Topic) -> Danger:
    """Return the effects of purging a topic, and the required confirmation."""
    of_delete = danger_of(topic)
    return replace(
        of_delete,
        title=_("Purge topic %(name)s?") % {"name": topic.name},
        text=_(
            "Brokers can't empty a topic, so the console deletes it and creates it again with "
            "the same settings. Its queues start at 0. Producers may be rejected for a moment, "
            "and connected consumers find the new queues within 30 seconds."
        ),
        undo=_("The messages can't be restored."),
        action=_("Purge topic"),
        icon="eraser",
        address=reverse("topics:purge", args=[topic.name]),
    )


def purge_topic(request: HttpRequest, subject: Topic, deleted: list[Entry]) -> Entry:
    """Delete and recreate a topic under an audit entry, which `deleted` gets in between.

    Raises:
        GatewayError: a broker refused; if `deleted` has the entry, the topic is gone.
    """
    before = {"configs": state_of(subject)}
    with change(request, "topic.purge", subject.name, before=before) as entry:
        gateway().topics.delete(subject.name)
        deleted.append(entry)
        for broker_name, config in subject.configs.items():
            gateway().topics.save(config, [broker_name])
    return entry


TOPICS = ConfigService(
    "topic", WORDS, TopicForm, TopicConfig, Requests(every, save, remove, in_use, objection)
)


def delete_topic(request: HttpRequest, subject: Topic) -> Entry:
    """Delete a topic under an audit entry.

    Raises:
        GatewayError: a broker refused.
    """
    configs = {"configs": state_of(subject)}
    return TOPICS.deleted(
        request, subject.name, lambda: gateway().topics.delete(subject.name), configs, None
    )


def require_purgeable(subject: Topic) -> None:
    """Refuse to purge a topic that clients don't send to directly."""
    if subject.is_system or subject.kind is not TopicKind.NORMAL:
        raise PermissionDenied
