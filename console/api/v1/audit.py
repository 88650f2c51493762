"""The audit: who changed what."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from ninja import Schema

from console.accounts.rights import rights_on
from console.api.operations import Need, operation, require_scopes
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
from console.api.v1 import configuring, labels
from console.api.v1.broker_accounts import account_restored
from console.api.v1.brokers import key_restored
from console.api.v1.configuring import Accept
from console.api.v1.files import file_restored
from console.api.v1.naming import kv_restored, write_restored
from console.api.v1.offsets import restored
from console.audit.models import Entry
from console.audit.views import narrowed
from console.broker_accounts.changing import UNDONE as ACCOUNTS_UNDONE
from console.brokers.kv_changing import UNDONE as KV_UNDONE
from console.brokers.write_permission import UNDONE as WRITING_UNDONE
from console.files import planning
from console.groups.views import PAGES as GROUP_PAGES
from console.topics.views import PAGES as TOPIC_PAGES

UNDO_SCOPES = {
    "topic": "topics:write",
    "group": "groups:write",
    "offset": "offsets:write",
    "config": "brokers:write",
    "broker": "brokers:write",
    "name-server": "brokers:write",
    "broker-account": "people:write",
    "broker-white": "people:write",
}
"""What undoing takes beside `audit:write`, by what was done: the scope that doing it took."""


class EntryOut(Schema):
    """One attempt to change something; `request_id` is the one of the request's answer."""

    id: int
    at_ms: int
    who: str
    token: str
    request_id: str
    address: str
    action: str
    subject: str
    outcome: str
    remark: str
    times: int
    before: Any
    after: Any


def entry_out(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.pk,
        "at_ms": int(entry.at.timestamp() * 1_000),
        "who": entry.actor_name,
        "token": entry.token,
        "request_id": entry.request_id,
        "address": entry.address,
        "action": entry.action,
        "subject": entry.subject,
        "outcome": entry.outcome,
        "remark": entry.remark,
        "times": entry.times,
        "before": entry.before,
        "after": entry.after,
    }


@operation(
    "GET",
    "/audit",
    area="audit",
    need=Need.ADMINISTER,
    pages=("audit:list", "audit:export"),
    response=Listed[EntryOut],
)
def audit(
    request: HttpRequest,
    q: Text = "",
    action: Text = "",
    cursor: Cursor = "",
    limit: Limit = LIMIT,
) -> dict[str, Any]:
    """List the audit's entries, newest first."""
    page, following = newest(narrowed(q, action), cursor, limit)
    return {"items": [entry_out(each) for each in page], "next": following}


@operation(
    "POST",
    "/audit/{entry}/undo",
    area="audit",
    varying="the scope and the right that the change itself took, such as topics:write",
    pages=(
        *("topics:undo", "groups:undo", "offsets:restore", "brokers:undo", "brokers:kv-undo"),
        *("topics:label-undo", "groups:label-undo", "files:undo", "broker_accounts:undo"),
        "brokers:write-undo",
    ),
    response=Done | PlanOut,
)
def audit_undo(
    request: HttpRequest, entry: Number, dry_run: DryRun = False, accept: Accept = False
) -> Done | PlanOut:
    """Undo what an entry says was done; it takes the scope and the right that doing it took."""
    found = get_object_or_404(Entry, pk=entry)
    kind = found.action.partition(".")[0]
    if kind in UNDO_SCOPES:
        require_scopes(request, UNDO_SCOPES[kind])
    if found.action == "offset.reset":
        return restored(request, entry, dry_run=dry_run)
    if found.action == "broker.configure":
        return key_restored(request, found, dry_run=dry_run)
    if found.action == planning.ACTION:
        return file_restored(request, found, dry_run=dry_run, accept=accept)
    if found.action in KV_UNDONE:
        return kv_restored(request, found, dry_run=dry_run, accept=accept)
    if found.action in WRITING_UNDONE:
        return write_restored(request, found, dry_run=dry_run)
    if found.action in ACCOUNTS_UNDONE:
        return account_restored(request, found, dry_run=dry_run)
    pages = {"topic": TOPIC_PAGES, "group": GROUP_PAGES}.get(kind)
    if pages is None:
        detail = _("What this entry says cannot be taken back here.")
        raise ProblemError(HTTPStatus.CONFLICT, detail)
    if found.action == f"{kind}.label":
        return labels.restored(request, pages, entry, dry_run=dry_run)
    rights_on(request).require(pages.action, found.subject)
    plan = pages.undoing(entry)
    return configuring.settled(request, pages, plan, dry_run=dry_run, accept=accept)
