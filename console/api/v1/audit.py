"""The audit log of changes."""

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
from console.api.v1.broker_accounts import undo_account_change
from console.api.v1.brokers import undo_key_change
from console.api.v1.configuring import Accept
from console.api.v1.files import undo_file_change
from console.api.v1.naming import undo_entry_change, undo_write_permission
from console.api.v1.offsets import undo_reset
from console.broker.broker_accounts.changing import UNDONE as ACCOUNTS_UNDONE
from console.broker.brokers.kv_changing import UNDONE as KV_UNDONE
from console.broker.brokers.write_permission import UNDONE as WRITING_UNDONE
from console.broker.files import planning
from console.broker.groups.services import GROUPS
from console.broker.topics.services import TOPICS
from console.people.audit.models import Entry
from console.people.audit.searching import narrowed

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
"""The scope that undoing an action requires in addition to `audit:write`: the scope of the action.
"""


class EntryOut(Schema):
    """An audit log entry; `request_id` matches the X-Request-Id of the response."""

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
    """List audit log entries, newest first."""
    page, following = newest(narrowed(q, action), cursor, limit)
    return {"items": [entry_out(each) for each in page], "next": following}


@operation(
    "POST",
    "/audit/{entry}/undo",
    area="audit",
    varying="the scope and right of the original change, such as topics:write",
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
    """Undo a change in the audit log; requires the scope and the right of the original change."""
    found = get_object_or_404(Entry, pk=entry)
    kind = found.action.partition(".")[0]
    if kind in UNDO_SCOPES:
        require_scopes(request, UNDO_SCOPES[kind])
    if found.action == "offset.reset":
        return undo_reset(request, entry, dry_run=dry_run)
    if found.action == "broker.configure":
        return undo_key_change(request, found, dry_run=dry_run)
    if found.action == planning.ACTION:
        return undo_file_change(request, found, dry_run=dry_run, accept=accept)
    if found.action in KV_UNDONE:
        return undo_entry_change(request, found, dry_run=dry_run, accept=accept)
    if found.action in WRITING_UNDONE:
        return undo_write_permission(request, found, dry_run=dry_run)
    if found.action in ACCOUNTS_UNDONE:
        return undo_account_change(request, found, dry_run=dry_run)
    service = {"topic": TOPICS, "group": GROUPS}.get(kind)
    if service is None:
        detail = _("This entry can't be undone here.")
        raise ProblemError(HTTPStatus.CONFLICT, detail)
    if found.action == f"{kind}.label":
        return labels.undo_label(request, service, entry, dry_run=dry_run)
    rights_on(request).require(service.action, found.subject)
    plan = service.undoing(entry)
    return configuring.preview_or_apply(request, service, plan, dry_run=dry_run, accept=accept)
