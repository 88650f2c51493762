"""The brokers' JSON configuration files: contents, changes and versions."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema
from pydantic import Field

from console.accounts.rights import rights_on
from console.api.operations import Need, operation
from console.api.plans import changes_of, overtaken, unchanged
from console.api.problems import ProblemError
from console.api.schemas import (
    LIMIT,
    Cursor,
    Done,
    DryRun,
    Limit,
    Listed,
    Number,
    PlanOut,
    Text,
    newest,
)
from console.api.v1.configuring import Accept
from console.broker.configs.plan import Plan
from console.broker.files import planning
from console.broker.files.changing import merge, plan_of, read
from console.broker.files.models import REASON_CHARACTERS_MAX, FileVersion, keep
from console.broker.files.rights import require_change
from console.broker.files.services import (
    checked,
    file_of,
    known,
    masters,
    reported_document,
    restoring,
    row_of,
    undoing,
)
from console.gateway.files import ConfigFile
from console.lib.missing import MissingError
from console.people.audit.models import Entry
from console.people.audit.record import change


class FileOut(Schema):
    """A broker's file; `count` is null if the file can't be read, and `problem` says why."""

    broker_name: str
    file: ConfigFile
    count: int | None
    problem: str


class FileVersionOut(Schema):
    """A stored version of a file."""

    id: int
    at_ms: int
    source: str
    by: str
    reason: str
    entry: int | None
    count: int


class FileVersionDetailOut(FileVersionOut):
    """A version with its entries."""

    entries: dict[str, Any]


@operation(
    "GET",
    "/files",
    area="brokers",
    pages=("files:index",),
    response=list[FileOut],
)
def files(request: HttpRequest) -> list[dict[str, Any]]:
    """List the configuration files of all masters."""
    found = []
    for broker_name in masters():
        for file in ConfigFile:
            row = row_of(broker_name, file)
            found.append(
                {
                    "broker_name": broker_name,
                    "file": file,
                    "count": row.count,
                    "problem": row.problem,
                }
            )
    return found


@operation(
    "GET",
    "/files/versions/{version}",
    area="brokers",
    pages=("files:history",),
    response=FileVersionDetailOut,
)
def file_version(request: HttpRequest, version: Number) -> Any:
    """Get a version of a file."""
    found = FileVersion.objects.filter(pk=version).first()
    if found is None:
        raise MissingError(_("This version doesn't exist or was deleted."))
    return found


@operation(
    "GET",
    "/files/{broker_name}/{file}",
    area="brokers",
    pages=("files:show", "files:download"),
    response=dict[str, Any],
)
def file(request: HttpRequest, broker_name: Text, file: Text) -> dict[str, Any]:
    """Get a file as the broker writes it."""
    kind = known(broker_name, file)
    return reported_document(broker_name, kind)


@operation(
    "GET",
    "/files/{broker_name}/{file}/versions",
    area="brokers",
    pages=("files:history",),
    response=Listed[FileVersionOut],
)
def file_versions(
    request: HttpRequest, broker_name: Text, file: Text, cursor: Cursor = "", limit: Limit = LIMIT
) -> dict[str, Any]:
    """List versions of a file, newest first."""
    versions = FileVersion.objects.filter(broker_name=broker_name, file=file_of(file))
    page, following = newest(versions.defer("packed"), cursor, limit)
    return {"items": page, "next": following}


Reason = Annotated[str, Field(max_length=REASON_CHARACTERS_MAX, description="For the audit log.")]
BY_ENTRIES = "topics:write, groups:write or offsets:write, depending on the entries"
Opened = Annotated[
    str,
    Field(
        max_length=20,
        pattern=r"^[0-9]*$",
        description="`seen` from a dry run; rejects entries that changed since then.",
    ),
]
DOCUMENT: dict[str, Any] = {
    "type": "object",
    "description": "The whole file, as GET returns it.",
}


def editable(request: HttpRequest, broker_name: str, file: str) -> ConfigFile:
    kind = known(broker_name, file)
    require_change(rights_on(request), kind)
    return kind


def preview_or_apply(
    request: HttpRequest,
    plan: Plan,
    *,
    dry_run: bool,
    accept: bool,
    reason: str,
    undoes: int | None = None,
    seen: str = "",
) -> Done | PlanOut:
    """Preview the plan for a file, or apply it."""
    shown = planning.shown(plan)
    refusal, objection = " ".join(shown.refusals), " ".join(shown.costs)
    changes = changes_of(plan)
    if dry_run:
        title = f"{planning.ACTION} {plan.name}"
        return PlanOut(
            title=title, refusal=refusal, objection=objection, changes=changes, seen=seen
        )
    if plan.is_idle:
        return unchanged()
    if plan.is_overtaken:
        raise overtaken(changes)
    planning.require_own(request, plan)
    if refusal or (objection and not accept):
        more = {"refusal": refusal, "objection": objection}
        raise ProblemError(HTTPStatus.CONFLICT, refusal or objection, more=more)
    entry = planning.apply_one(partial(change, request), shown, " ".join(reason.split()), undoes)
    text = _("%(count)d entries of %(subject)s were changed.")
    values = {"count": sum(shown.counts.values()), "subject": plan.name}
    return Done(detail=text % values, entry=entry.pk)


@operation(
    "PUT",
    "/files/{broker_name}/{file}",
    area="brokers",
    need=Need.CONFIGURE,
    varying=BY_ENTRIES,
    pages=("files:edit",),
    body=DOCUMENT,
    response=Done | PlanOut,
)
def file_change(
    request: HttpRequest,
    broker_name: Text,
    file: Text,
    dry_run: DryRun = False,
    accept: Accept = False,
    seen: Opened = "",
    reason: Reason = "",
) -> Done | PlanOut:
    """Replace a file's contents, sending each changed entry to the broker."""
    kind = editable(request, broker_name, file)
    try:
        text = request.body.decode()
    except UnicodeDecodeError as error:
        detail = _("The request body must be a JSON object.")
        raise ProblemError(HTTPStatus.BAD_REQUEST, detail) from error
    problems, mine = checked(kind, text)
    if problems:
        errors = [{"field": f"line {each.line or 1}", "problem": each.text} for each in problems]
        detail = " ".join(each.text for each in problems)
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=errors)
    now = read(broker_name, kind)
    base = version_of(broker_name, kind, seen).entries if seen else now
    plan = plan_of(broker_name, kind, base, now, merge(base, mine, now))
    opened = str(keep(broker_name, kind, now).pk) if dry_run else ""
    return preview_or_apply(
        request, plan, dry_run=dry_run, accept=accept, reason=reason, seen=opened
    )


def version_of(broker_name: str, kind: ConfigFile, seen: str) -> FileVersion:
    number = min(int(seen), 2**63 - 1)
    found = FileVersion.objects.filter(broker_name=broker_name, file=kind, pk=number).first()
    if found is None:
        detail = _("The version you opened is no longer stored. Open the file again.")
        raise ProblemError(HTTPStatus.CONFLICT, detail)
    return found


@operation(
    "POST",
    "/files/versions/{version}/restore",
    area="brokers",
    need=Need.CONFIGURE,
    varying=BY_ENTRIES,
    pages=("files:restore",),
    response=Done | PlanOut,
)
def file_restore(
    request: HttpRequest,
    version: Number,
    dry_run: DryRun = False,
    accept: Accept = False,
    reason: Reason = "",
) -> Done | PlanOut:
    """Restore a file to a version."""
    found = FileVersion.objects.filter(pk=version).first()
    if found is None:
        raise MissingError(_("This version doesn't exist or was deleted."))
    kind = editable(request, found.broker_name, found.file)
    plan = restoring(found, kind)
    return preview_or_apply(request, plan, dry_run=dry_run, accept=accept, reason=reason)


def undo_file_change(
    request: HttpRequest, done: Entry, *, dry_run: bool, accept: bool
) -> Done | PlanOut:
    """Undo a change of a file."""
    Need.CONFIGURE.require(request)
    return preview_or_apply(
        request, undoing(done.pk), dry_run=dry_run, accept=accept, reason="", undoes=done.pk
    )
