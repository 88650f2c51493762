"""Labels: the owner and description of topics and groups, stored by the console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema

from console.accounts.actions import Action
from console.api.operations import operation
from console.api.plans import overtaken, unchanged
from console.api.requestbody import schema_of, valid_form
from console.api.schemas import Done, PlanOut, Text
from console.broker.configs import labels
from console.broker.configs.labels import LabelForm, label_of, values_of
from console.broker.configs.services import refuse_system
from console.broker.groups.services import GROUPS, get_group as found_group
from console.broker.topics.services import TOPICS, get_topic as found_topic

if TYPE_CHECKING:
    from console.broker.configs.services import ConfigService
    from console.people.audit.models import Entry


class LabelOut(Schema):
    """The label of a topic or group."""

    owner: str
    description: str
    message_type: str


TOPIC_LABEL = schema_of(LabelForm)
GROUP_LABEL: dict[str, Any] = {
    **TOPIC_LABEL,
    "properties": {
        name: each for name, each in TOPIC_LABEL["properties"].items() if name != "message_type"
    },
}


def update_label(request: HttpRequest, service: ConfigService, name: str) -> Done:
    """Change the label's fields that are in the body."""
    before = values_of(label_of(service.kind, name))
    form = valid_form(request, lambda data: LabelForm(service.kind, data, initial=before))
    after = {**before, **form.cleaned_data}
    if after == before:
        return unchanged()
    entry = labels.save_label(request, service, name, form.cleaned_data)
    return Done(detail=_("The label of %(name)s was changed.") % {"name": name}, entry=entry.pk)


def undo_label(
    request: HttpRequest, service: ConfigService, entry: int, *, dry_run: bool
) -> Done | PlanOut:
    """Undo a change of a label."""
    done: Entry = labels.done_entry(request, service, entry)
    name = done.subject
    now, wanted = values_of(label_of(service.kind, name)), done.before or {}
    changes = {"seen": done.after, "now": now, "wanted": wanted}
    if dry_run:
        return PlanOut(title=f"{done.action} {name}", changes=changes)
    if now == wanted:
        return unchanged()
    if labels.is_overtaken(service, done):
        raise overtaken(changes)
    undoing = labels.restore_label(request, service, done)
    detail = _("The label of %(name)s was restored.") % {"name": name}
    return Done(detail=detail, entry=undoing.pk)


@operation(
    "GET",
    "/labels/topics/{path:topic}",
    area="topics",
    pages=("topics:label",),
    response=LabelOut,
)
def topic_label(request: HttpRequest, topic: Text) -> dict[str, str]:
    """Get a topic's owner and description."""
    return values_of(label_of(TOPICS.kind, found_topic(topic).name))


@operation(
    "PATCH",
    "/labels/topics/{path:topic}",
    area="topics",
    need=Action.TOPIC,
    named="topic",
    pages=("topics:label",),
    body=TOPIC_LABEL,
    response=Done,
)
def topic_label_change(request: HttpRequest, topic: Text) -> Done:
    """Set a topic's owner and description; empty values delete the label."""
    refuse_system(found_topic(topic))
    return update_label(request, TOPICS, topic)


@operation(
    "GET",
    "/labels/groups/{path:group}",
    area="groups",
    pages=("groups:label",),
    response=LabelOut,
)
def group_label(request: HttpRequest, group: Text) -> dict[str, str]:
    """Get a group's owner and description."""
    return values_of(label_of(GROUPS.kind, found_group(group).name))


@operation(
    "PATCH",
    "/labels/groups/{path:group}",
    area="groups",
    need=Action.GROUP,
    named="group",
    pages=("groups:label",),
    body=GROUP_LABEL,
    response=Done,
)
def group_label_change(request: HttpRequest, group: Text) -> Done:
    """Set a group's owner and description; empty values delete the label."""
    refuse_system(found_group(group))
    return update_label(request, GROUPS, group)
