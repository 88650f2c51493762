"""Pages to import and export configurations, and to compare brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy

from console.accounts.permissions import form, page
from console.accounts.rights import rights_on
from console.broker.files import planning
from console.broker.files.documents import (
    CHARACTERS_MAX,
    SECTIONS,
    drift_of,
    entries_by_broker,
    like,
    plans_of,
    read_document,
    yaml_of,
)
from console.broker.files.entries import FileProblemsError
from console.broker.files.rights import may_change, require_change, require_change_of_any
from console.broker.files.services import file_of, masters
from console.lib.missing import MissingError
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest

    from console.broker.files.entries import Entries, Problem
    from console.gateway.files import ConfigFile

DRIFTS_SHOWN = 200


class ImportForm(forms.Form):
    """A file or its text, and the target brokers."""

    document = forms.FileField(
        label=gettext_lazy("File"),
        required=False,
        help_text=gettext_lazy("YAML from this console, or a broker's JSON file."),
    )
    text = forms.CharField(
        label=gettext_lazy("Or paste its content"),
        required=False,
        max_length=CHARACTERS_MAX,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 12, "spellcheck": "false", "class": "mono"}),
    )
    broker_names = forms.MultipleChoiceField(
        label=gettext_lazy("Brokers"), widget=forms.CheckboxSelectMultiple
    )
    is_whole = forms.BooleanField(
        label=gettext_lazy("Delete entries that aren't in the file"),
        required=False,
        help_text=gettext_lazy("The plan shows what will be deleted, and with how many messages."),
    )

    def __init__(self, *args: Any, broker_names: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        chosen = self.fields["broker_names"]
        assert isinstance(chosen, forms.MultipleChoiceField)
        chosen.choices = [(name, name) for name in broker_names]
        chosen.initial = list(broker_names)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        uploaded = cleaned.get("document")
        if uploaded is not None:
            try:
                cleaned["text"] = uploaded.read().decode()
            except UnicodeDecodeError:
                self.add_error("document", _("The file isn't UTF-8 text."))
        if not cleaned.get("text", "").strip() and not self.errors:
            self.add_error("text", _("Choose a file, or paste its content here."))
        return cleaned


@form
def import_(request: HttpRequest) -> HttpResponse:
    """Import a file: form, a plan for each broker and file, apply."""
    require_change_of_any(rights_on(request))
    back = reverse("files:index")
    if "token" in request.POST:
        return planning.apply(request, back)
    names = masters()
    is_sent = request.method == "POST"
    form = ImportForm(
        request.POST if is_sent else None, request.FILES if is_sent else None, broker_names=names
    )
    problems: Sequence[Problem] = ()
    if is_sent and "back" not in request.POST and form.is_valid():
        chosen = form.cleaned_data
        try:
            document = read_document(chosen["text"])
            plans = plans_of(document, chosen["broker_names"], is_whole=chosen["is_whole"])
        except FileProblemsError as error:
            problems = error.problems
        else:
            kept = [("text", chosen["text"])]
            kept += [("broker_names", name) for name in chosen["broker_names"]]
            kept += [("is_whole", "on")] if chosen["is_whole"] else []
            return planning.show(request, plans, back=back, entries=kept)
    context = {"form": form, "problems": problems, "brokers": names}
    status = 422 if problems or (form.is_bound and form.errors) else 200
    return render(request, "files/import.html", context, status=status)


@page
def export(request: HttpRequest) -> HttpResponse:
    """Return topics, groups and filters of all masters as YAML."""
    answer = HttpResponse(yaml_of(masters()), content_type="application/yaml")
    answer["Content-Disposition"] = 'attachment; filename="trebuchet.yaml"'
    return answer


@page
def drift(request: HttpRequest) -> HttpResponse:
    """Show topics, groups and filters that differ between masters."""
    names = masters()
    context = {
        "brokers": names,
        "tables": [drift_table(file, entries_by_broker(file, names)) for file in SECTIONS.values()],
        "shown_max": DRIFTS_SHOWN,
        "changed_by_me": [
            file for file in SECTIONS.values() if may_change(rights_on(request), file)
        ],
        "read_at_ms": now_ms(),
    }
    return render(request, "files/drift.html", context)


def drift_table(file: ConfigFile, found: dict[str, Entries]) -> dict[str, Any]:
    drifts = drift_of(file, found)
    return {
        "file": file,
        "brokers": list(found),
        "count": len(drifts),
        "drifts": drifts[:DRIFTS_SHOWN],
    }


@page
def match_others(request: HttpRequest, broker_name: str, file: str) -> HttpResponse:
    """Make the other masters match this one, in one entry (`?name=…`) or in all."""
    kind = file_of(file)
    names = masters()
    found = entries_by_broker(kind, names) if kind in SECTIONS.values() else {}
    if broker_name not in found:
        raise MissingError(_("No master named %s is registered.") % broker_name)
    require_change(rights_on(request), kind)
    is_whole = request.GET.get("whole") == "on"
    name = request.GET.get("name", "")
    plans = like(broker_name, kind, found, name=name, is_whole=is_whole)
    # The import page can apply plans for several brokers.
    return planning.show(
        request, plans, back=reverse("files:drift"), action=reverse("files:import")
    )
