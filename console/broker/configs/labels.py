"""Labels of topics and groups: shown on pages, edited in a form, and restored by undo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.shortcuts import get_object_or_404, redirect, render
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
from console.people.audit.undo import offer_undo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.http import HttpRequest, HttpResponse

    from console.broker.configs.pages import ConfigPages

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


def edit(request: HttpRequest, pages: ConfigPages, name: str) -> HttpResponse:
    """Show the form of a label; a POST saves it."""
    label = label_of(pages.kind, name)
    before = values_of(label)
    form = LabelForm(pages.kind, request.POST or None, initial=before)
    if request.method == "POST" and form.is_valid():
        entry = save_label(request, pages, name, form.cleaned_data)
        offer_undo(request, _("The label of %(name)s was changed.") % {"name": name}, entry)
        return redirect(pages.detail_name, name)
    context = {"form": form, "pages": pages, "name": name}
    return render(request, "configs/label.html", context)


def save_label(
    request: HttpRequest, pages: ConfigPages, name: str, values: dict[str, str]
) -> Entry:
    """Save a label under an audit log entry."""
    label = label_of(pages.kind, name)
    before = values_of(label)
    after = {**before, **values}
    with change(request, f"{pages.kind}.label", name, before=before, after=after) as entry:
        put(label, after)
    return entry


def undo(request: HttpRequest, pages: ConfigPages, entry: int) -> HttpResponse:
    """Restore the previous label, or show the form if it has changed since.

    A GET shows the form with the previous label.
    """
    done = done_entry(request, pages, entry)
    name = done.subject
    if request.method == "POST" and not is_overtaken(pages, done):
        undoing = restore_label(request, pages, done)
        offer_undo(request, _("The label of %(name)s was restored.") % {"name": name}, undoing)
        return redirect(pages.detail_name, name)
    form = LabelForm(pages.kind, initial=done.before or {})
    context = {
        "form": form,
        "pages": pages,
        "name": name,
        "is_overtaken": is_overtaken(pages, done),
    }
    return render(request, "configs/label.html", context)


def done_entry(request: HttpRequest, pages: ConfigPages, entry: int) -> Entry:
    """Return the audit log entry of a label change, for people who can change the label."""
    done = get_object_or_404(
        Entry, pk=entry, action=f"{pages.kind}.label", outcome=Entry.Outcome.DONE
    )
    require(request, pages.action, done.subject)
    return done


def is_overtaken(pages: ConfigPages, done: Entry) -> bool:
    """Return whether the label has changed since the entry."""
    return values_of(label_of(pages.kind, done.subject)) != (done.after or {})


def restore_label(request: HttpRequest, pages: ConfigPages, done: Entry) -> Entry:
    """Restore the label from before a change, under an audit log entry."""
    label, before = label_of(pages.kind, done.subject), done.before or {}
    now = values_of(label)
    with change(request, done.action, done.subject, before=now, after=before) as undoing:
        undoing.remark = _("Undoes entry %(entry)d.") % {"entry": done.pk}
        put(label, before)
    return undoing
