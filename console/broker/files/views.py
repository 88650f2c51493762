"""Pages of configuration files: list, view, edit, versions and undo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.permissions import form, page
from console.accounts.rights import rights_on
from console.broker.files import planning
from console.broker.files.changing import merge, plan_of, read
from console.broker.files.entries import (
    Lines,
    Problem,
    entries_in,
    text_with,
)
from console.broker.files.filters import refused_expressions
from console.broker.files.models import FileVersion, keep
from console.broker.files.rights import may_change, require_change, require_change_of_any
from console.broker.files.schema import json_schema
from console.broker.files.services import (
    VERSIONED_FILES,
    applied_in,
    checked,
    difference,
    file_of,
    known,
    masters,
    newest,
    reported_document,
    restoring,
    row_of,
    undoing,
)
from console.gateway.access import gateway
from console.gateway.files import ConfigFile, text_of
from console.lib.lists import Chip, search_text, stored_page_of
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from django.http import HttpRequest

    from console.broker.configs.plan import Plan

TEXT_CHARACTERS_SHOWN = 200_000
NAMING = (ConfigFile.OFFSETS, ConfigFile.FILTERS)
"""Files whose editors suggest names of topics and groups."""


def broker_of(request: HttpRequest) -> tuple[str, list[Chip]]:
    """Return the selected broker, or the first, and the chips for all brokers."""
    names = masters()
    asked = request.GET.get("kind", "")
    chosen = asked if asked in names else next(iter(names), "")
    return chosen, [Chip(name, name, len(ConfigFile)) for name in names]


@page
def index(request: HttpRequest) -> HttpResponse:
    """List the files of a broker."""
    broker_name, chips = broker_of(request)
    rows = [row_of(broker_name, file) for file in ConfigFile] if broker_name else []
    context = {
        "broker_name": broker_name,
        "rows": rows,
        "chips": chips if len(chips) > 1 else [],
        "kind": broker_name,
        "brokers": len(chips),
        "changed_by_me": [file for file in ConfigFile if may_change(rights_on(request), file)],
        "read_at_ms": now_ms(),
    }
    return render(request, "files/index.html", context)


@page
def show(request: HttpRequest, broker_name: str, file: str) -> HttpResponse:
    """Show a file, or only the entries whose names contain a text."""
    kind = known(broker_name, file)
    document = gateway().files.read(kind, [broker_name])[broker_name]
    query = search_text(request)
    if document is None:
        return render(
            request,
            "files/show.html",
            {"broker_name": broker_name, "file": kind, "is_untold": True, "query": query},
        )
    entries = entries_in(kind, document)
    if kind in VERSIONED_FILES:
        keep(broker_name, kind, entries)
    total = len(document[kind.table])
    if query:
        table = document[kind.table]
        fitting = {name: table[name] for name in table if query.lower() in name.lower()}
        document = {**document, kind.table: fitting}
    text = text_of(kind, document)
    context = {
        "broker_name": broker_name,
        "file": kind,
        "query": query,
        "text": text[:TEXT_CHARACTERS_SHOWN],
        "is_cut": len(text) > TEXT_CHARACTERS_SHOWN,
        "count": len(document[kind.table]),
        "total": total,
        "is_editable": may_change(rights_on(request), kind),
        "version": newest(broker_name, kind),
        "read_at_ms": now_ms(),
    }
    return render(request, "files/show.html", context)


@page
def download(request: HttpRequest, broker_name: str, file: str) -> HttpResponse:
    """Return a file as the broker writes it."""
    kind = known(broker_name, file)
    document = reported_document(broker_name, kind)
    answer = HttpResponse(text_of(kind, document), content_type="application/json")
    answer["Content-Disposition"] = f'attachment; filename="{kind}"'
    return answer


@page
def schema(request: HttpRequest, file: str) -> HttpResponse:
    """Return the JSON Schema of a file."""
    return JsonResponse(json_schema(file_of(file)))


@form
def edit(request: HttpRequest, broker_name: str, file: str) -> HttpResponse:
    """Edit a file as text: form, plan, apply."""
    kind = known(broker_name, file)
    require_change(rights_on(request), kind)
    back = reverse("files:show", args=[broker_name, kind])
    if "token" in request.POST:
        return planning.apply(request, back)
    now = read(broker_name, kind)
    if request.method != "POST":
        opened = keep(broker_name, kind, now)
        return editor(request, broker_name, kind, text_with(kind, now), opened.pk)
    text = request.POST.get("text", "")
    base_of = base_in(request, broker_name, kind)
    problems, mine = checked(kind, text)
    if kind is ConfigFile.FILTERS and not problems:
        lines = Lines(text)
        problems = [
            Problem(said, lines.of(name, "expression"))
            for name, said in refused_expressions(broker_name, mine, now)
        ]
    if "check" in request.POST:
        return JsonResponse({"problems": [[each.line, each.text] for each in problems]})
    if base_of is None:
        problems = [Problem(_("The version you opened is no longer stored. Open the file again."))]
    if "back" in request.POST or problems or base_of is None:
        pk = base_of.pk if base_of is not None else 0
        return editor(request, broker_name, kind, text, pk, problems)
    base = base_of.entries
    plan = plan_of(broker_name, kind, base, now, merge(base, mine, now))
    kept = [("text", text), ("base", str(base_of.pk))]
    others = sum(base.get(name) != now.get(name) for name in {*base, *now})
    return planning.show(
        request, [plan], back=back, entries=kept, others=others - overtaken_in(plan)
    )


def overtaken_in(plan: Plan) -> int:
    return sum(plan.seen.get(name) != plan.now.get(name) for name in plan.wanted)


def base_in(request: HttpRequest, broker_name: str, kind: ConfigFile) -> FileVersion | None:
    """Return the version that a form was opened on."""
    pk = request.POST.get("base", "")
    found = FileVersion.objects.filter(broker_name=broker_name, file=kind)
    return found.filter(pk=int(pk)).first() if pk.isdecimal() else None


def editor(
    request: HttpRequest,
    broker_name: str,
    kind: ConfigFile,
    text: str,
    base: int,
    problems: list[Problem] | None = None,
) -> HttpResponse:
    words: tuple[str, ...] = ()
    if kind in NAMING:
        brokers = gateway()
        words = (*brokers.topics.all(), *brokers.groups.all())
    context = {
        "broker_name": broker_name,
        "file": kind,
        "text": text,
        "base": base,
        "problems": problems or [],
        "schema": json_schema(kind),
        "words": list(words),
        "template": TEMPLATES[kind],
    }
    return render(request, "files/edit.html", context, status=422 if problems else 200)


TEMPLATES = {
    ConfigFile.TOPICS: '"NewTopic":{"perm":6,"readQueueNums":8,"writeQueueNums":8}',
    ConfigFile.GROUPS: '"new_group":{"retryMaxTimes":16}',
    ConfigFile.OFFSETS: '"Topic@group":{0:0}',
    ConfigFile.DELAYS: "3:0",
    ConfigFile.FILTERS: (
        '"Topic":{"groupFilterData":{"group":{"expression":"price > 10"}},"topic":"Topic"}'
    ),
}


@page
def history(request: HttpRequest, broker_name: str, file: str) -> HttpResponse:
    """List a file's versions; compare two of them, or one with the current state."""
    kind = file_of(file)
    versions = FileVersion.objects.filter(broker_name=broker_name, file=kind).defer("packed")
    page = stored_page_of(request, versions)
    older, newer = (version_in(request, name, broker_name, kind) for name in ("from", "to"))
    context: dict[str, Any] = {
        "broker_name": broker_name,
        "file": kind,
        "page": page,
        "rows": list(page.object_list),
        "older": older,
        "newer": newer,
        "is_editable": may_change(rights_on(request), kind),
    }
    if older is not None:
        after = newer.entries if newer is not None else read(broker_name, kind)
        plan = plan_of(
            broker_name, kind, older.entries, older.entries, difference(older.entries, after)
        )
        parts = [(part, list(part.lines({}))) for part in plan.parts]
        context |= {"parts": parts, "plan": plan, "is_compared": True}
    return render(request, "files/history.html", context)


def version_in(
    request: HttpRequest, name: str, broker_name: str, kind: ConfigFile
) -> FileVersion | None:
    pk = request.GET.get(name, "")
    if not pk.isdecimal():
        return None
    return get_object_or_404(FileVersion, pk=int(pk), broker_name=broker_name, file=kind)


@form
def restore(request: HttpRequest, pk: int) -> HttpResponse:
    """Preview restoring a version, and restore it."""
    require_change_of_any(rights_on(request))
    version = get_object_or_404(FileVersion, pk=pk)
    kind = known(version.broker_name, version.file)
    require_change(rights_on(request), kind)
    back = reverse("files:history", args=[version.broker_name, kind])
    if "token" in request.POST:
        return planning.apply(request, back)
    plan = restoring(version, kind)
    return planning.show(request, [plan], back=back)


@form
def undo(request: HttpRequest, entry: int) -> HttpResponse:
    """Preview undoing a change; a POST undoes it unless the state has changed since."""
    require_change_of_any(rights_on(request))
    done, (broker_name, kind) = applied_in(entry)
    require_change(rights_on(request), kind)
    back = reverse("files:show", args=[broker_name, kind])
    if "token" in request.POST:
        return planning.apply(request, back)
    plan = undoing(entry)
    if request.method != "POST":
        return planning.show(request, [plan], back=back, undoes=done.pk)
    return planning.finish(request, [plan], back=back, undoes=done.pk)
