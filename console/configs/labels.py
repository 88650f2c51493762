"""Labels of topics and groups: read for lists and pages, changed by a form, taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _, gettext_lazy

from console.accounts.permissions import require
from console.audit.models import Entry
from console.audit.record import change
from console.audit.undo import tell
from console.configs.models import (
    DESCRIPTION_CHARACTERS_MAX,
    OWNER_CHARACTERS_MAX,
    Label,
    MessageType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.http import HttpRequest, HttpResponse

    from console.configs.pages import ConfigPages

TOPIC, GROUP = "topic", "group"
VALUES = ("owner", "description", "message_type")
NAMES_AT_ONCE = 500


class LabelForm(forms.Form):
    """What people say of a topic or a group."""

    owner = forms.CharField(
        label=gettext_lazy("Owner"),
        required=False,
        max_length=OWNER_CHARACTERS_MAX,
        help_text=gettext_lazy("A team or a person; the lists find it."),
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
        choices=[("", gettext_lazy("Not said")), *MessageType.choices],
        help_text=gettext_lazy(
            "What the topic is meant for. Brokers of 4.9 take every kind in every topic."
        ),
    )

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if kind != TOPIC:
            del self.fields["message_type"]


def label_of(kind: str, name: str) -> Label:
    """Return a label; an empty one where nobody has said anything."""
    return Label.objects.filter(kind=kind, name=name).first() or Label(kind=kind, name=name)


def labels_of(kind: str, names: Iterable[str] | None = None) -> dict[str, Label]:
    """Return the labels that there are, by name; of these names where they are few."""
    found = Label.objects.filter(kind=kind)
    asked = None if names is None else list(names)
    if asked is not None and len(asked) <= NAMES_AT_ONCE:
        found = found.filter(name__in=asked)
    return {label.name: label for label in found}


def values_of(label: Label) -> dict[str, str]:
    return {key: getattr(label, key) for key in VALUES}


def put(label: Label, values: dict[str, str]) -> None:
    """Keep what a label says; one that says nothing goes."""
    for key in VALUES:
        setattr(label, key, values.get(key, ""))
    if any(values_of(label).values()):
        label.save()
    elif label.pk is not None:
        label.delete()


def edit(request: HttpRequest, pages: ConfigPages, name: str) -> HttpResponse:
    """Show the form of a label; a POST keeps what it says."""
    label = label_of(pages.kind, name)
    before = values_of(label)
    form = LabelForm(pages.kind, request.POST or None, initial=before)
    if request.method == "POST" and form.is_valid():
        entry = labelled(request, pages, name, form.cleaned_data)
        tell(request, _("The label of %(name)s is changed.") % {"name": name}, entry)
        return redirect(pages.detail_name, name)
    context = {"form": form, "pages": pages, "name": name}
    return render(request, "configs/label.html", context)


def labelled(request: HttpRequest, pages: ConfigPages, name: str, said: dict[str, str]) -> Entry:
    """Keep what a label says."""
    label = label_of(pages.kind, name)
    before = values_of(label)
    after = {**before, **said}
    with change(request, f"{pages.kind}.label", name, before=before, after=after) as entry:
        put(label, after)
    return entry


def undo(request: HttpRequest, pages: ConfigPages, entry: int) -> HttpResponse:
    """Put back what a label said before, unless somebody has changed it since: then show the form.

    A GET shows the form with what would come back.
    """
    done = done_entry(request, pages, entry)
    name = done.subject
    if request.method == "POST" and not is_overtaken(pages, done):
        undoing = unlabelled(request, pages, done)
        tell(request, _("The label of %(name)s is what it was.") % {"name": name}, undoing)
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
    """Return the entry of a label that was changed, to whoever may change it."""
    done = get_object_or_404(
        Entry, pk=entry, action=f"{pages.kind}.label", outcome=Entry.Outcome.DONE
    )
    require(request, pages.action, done.subject)
    return done


def is_overtaken(pages: ConfigPages, done: Entry) -> bool:
    """Whether the label says something else by now than the change left."""
    return values_of(label_of(pages.kind, done.subject)) != (done.after or {})


def unlabelled(request: HttpRequest, pages: ConfigPages, done: Entry) -> Entry:
    """Put back what a label said before a change."""
    label, before = label_of(pages.kind, done.subject), done.before or {}
    now = values_of(label)
    with change(request, done.action, done.subject, before=now, after=before) as undoing:
        undoing.remark = _("Undoes entry %(entry)d.") % {"entry": done.pk}
        put(label, before)
    return undoing
