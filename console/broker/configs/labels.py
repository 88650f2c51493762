"""Labels of topics and groups: read, changed and restored under audit log entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django import forms
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _, gettext_lazy

from console.accounts.permissions import require
from console.broker.configs.models import (
    DESCRIPTION_CHARACTERS_MAX,
    OWNER_CHARACTERS_MAX,
    Label,
    MessageType,
)
from console.people.audit.models import Entry
from console.people.audit.record import change

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from django.http import HttpRequest

    from console.broker.configs.services import ConfigService, Configured

Named = TypeVar("Named", bound="Configured")

TOPIC, GROUP = "topic", "group"
VALUES = ("owner", "description", "message_type")
NAMES_AT_ONCE = 500


class LabelForm(forms.Form):
    """The label of a topic or group."""

    owner = forms.CharField(
        label=gettext_lazy("Owner"),
        required=False,
        max_length=OWNER_CHARACTERS_MAX,
        help_text=gettext_lazy("The team or person responsible. You can search lists by owner."),
    )
    description = forms.CharField(
        label=gettext_lazy("Description"),
        required=False,
        max_length=DESCRIPTION_CHARACTERS_MAX,
        widget=forms.Textarea(attrs={"rows": 4}),
    )
    message_type = forms.ChoiceField(
        label=gettext_lazy("Messages"),
        required=False,
        choices=[("", gettext_lazy("Not specified")), *MessageType.choices],
        help_text=gettext_lazy(
            "The type of messages this topic is for. RocketMQ 4.9 brokers accept any type in "
            "any topic."
        ),
    )

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if kind != TOPIC:
            del self.fields["message_type"]


def label_of(kind: str, name: str) -> Label:
    """Return a label, or an empty text."""
    return Label.objects.filter(kind=kind, name=name).first() or Label(kind=kind, name=name)


def labels_of(kind: str, names: Iterable[str] | None = None) -> dict[str, Label]:
    """Return existing labels by name, only for these names if they are few."""
    found = Label.objects.filter(kind=kind)
    asked = None if names is None else list(names)
    if asked is not None and len(asked) <= NAMES_AT_ONCE:
        found = found.filter(name__in=asked)
    return {label.name: label for label in found}


def values_of(label: Label) -> dict[str, str]:
    return {key: getattr(label, key) for key in VALUES}


def put(label: Label, values: dict[str, str]) -> None:
    """Store a label, or delete it if it is empty."""
    for key in VALUES:
        setattr(label, key, values.get(key, ""))
    if any(values_of(label).values()):
        label.save()
    elif label.pk is not None:
        label.delete()


def save_label(
    request: HttpRequest, service: ConfigService, name: str, values: dict[str, str]
) -> Entry:
    """Save a label under an audit log entry."""
    label = label_of(service.kind, name)
    before = values_of(label)
    after = {**before, **values}
    with change(request, f"{service.kind}.label", name, before=before, after=after) as entry:
        put(label, after)
    return entry


def done_entry(request: HttpRequest, service: ConfigService, entry: int) -> Entry:
    """Return the audit log entry of a label change, for people who can change the label."""
    done = get_object_or_404(
        Entry, pk=entry, action=f"{service.kind}.label", outcome=Entry.Outcome.DONE
    )
    require(request, service.action, done.subject)
    return done


def is_overtaken(service: ConfigService, done: Entry) -> bool:
    """Return whether the label has changed since the entry."""
    return values_of(label_of(service.kind, done.subject)) != (done.after or {})


def restore_label(request: HttpRequest, service: ConfigService, done: Entry) -> Entry:
    """Restore the label from before a change, under an audit log entry."""
    label, before = label_of(service.kind, done.subject), done.before or {}
    now = values_of(label)
    with change(request, done.action, done.subject, before=now, after=before) as undoing:
        undoing.remark = _("Undoes entry %(entry)d.") % {"entry": done.pk}
        put(label, before)
    return undoing


def owner_in(label: Label | None) -> str | None:
    """Return a label's owner in lower case, or None without an owner."""
    return (label.owner.lower() or None) if label is not None else None


def matching(subjects: Iterable[Named], query: str, labels: Mapping[str, Label]) -> list[Named]:
    """Return the topics or groups whose name or owner contains a text, in any case."""
    text = query.lower()
    return [
        each
        for each in subjects
        if text in each.name.lower() or text in (owner_in(labels.get(each.name)) or "")
    ]
