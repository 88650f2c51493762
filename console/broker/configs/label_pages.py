"""Pages of labels: a form, and undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from console.broker.configs.labels import (
    LabelForm,
    done_entry,
    is_overtaken,
    label_of,
    restore_label,
    save_label,
    values_of,
)
from console.people.audit.undo import offer_undo

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.broker.configs.pages import ConfigPages


def edit(request: HttpRequest, pages: ConfigPages, name: str) -> HttpResponse:
    """Show the form of a label; a POST saves it."""
    label = label_of(pages.service.kind, name)
    before = values_of(label)
    form = LabelForm(pages.service.kind, request.POST or None, initial=before)
    if request.method == "POST" and form.is_valid():
        entry = save_label(request, pages.service, name, form.cleaned_data)
        offer_undo(request, _("The label of %(name)s was changed.") % {"name": name}, entry)
        return redirect(pages.detail_name, name)
    context = {"form": form, "pages": pages, "name": name}
    return render(request, "configs/label.html", context)


def undo(request: HttpRequest, pages: ConfigPages, entry: int) -> HttpResponse:
    """Restore the previous label, or show the form if it has changed since.

    A GET shows the form with the previous label.
    """
    done = done_entry(request, pages.service, entry)
    name = done.subject
    if request.method == "POST" and not is_overtaken(pages.service, done):
        undoing = restore_label(request, pages.service, done)
        offer_undo(request, _("The label of %(name)s was restored.") % {"name": name}, undoing)
        return redirect(pages.detail_name, name)
    form = LabelForm(pages.service.kind, initial=done.before or {})
    context = {
        "form": form,
        "pages": pages,
        "name": name,
        "is_overtaken": is_overtaken(pages.service, done),
    }
    return render(request, "configs/label.html", context)
