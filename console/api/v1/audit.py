"""The audit: who changed what."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Schema

from console.api.operations import Need, operation
from console.api.schemas import LIMIT, Cursor, Limit, Listed, Text, newest
from console.audit.models import Entry
from console.audit.views import narrowed


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
