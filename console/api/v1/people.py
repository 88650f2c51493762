"""People: who may sign in, and as what."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.http import HttpRequest
from ninja import Schema

from console.accounts.models import CustomRole
from console.accounts.people_views import Person, found, people_of
from console.api.operations import Need, operation
from console.api.schemas import LIMIT, Cursor, Limit, Listed, Number, Text, newest
from console.masking.models import MaskingRule


class RoleOut(Schema):
    """A role made here: actions on topics and groups whose names fit its patterns."""

    id: int
    name: str
    actions: list[str]
    topics: list[str]
    groups: list[str]


class PersonOut(Schema):
    """An account of the console."""

    id: int
    name: str
    role: str
    roles: list[str]
    is_active: bool
    signed_in_ms: int | None
    joined_ms: int | None


def person_out(person: Person) -> dict[str, Any]:
    return {
        "id": person.account.pk,
        "name": person.name,
        "role": person.role.value,
        "roles": person.custom_roles,
        "is_active": person.account.is_active,
        "signed_in_ms": person.signed_in_ms,
        "joined_ms": person.joined_ms,
    }


@operation(
    "GET",
    "/people",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:list",),
    response=Listed[PersonOut],
)
def people(
    request: HttpRequest, q: Text = "", cursor: Cursor = "", limit: Limit = LIMIT
) -> dict[str, Any]:
    """List the accounts, the newest first."""
    accounts = get_user_model().objects.filter(username__icontains=q)
    page, following = newest(accounts, cursor, limit)
    return {"items": [person_out(each) for each in people_of(page)], "next": following}


@operation(
    "GET",
    "/people/{person}",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:detail",),
    response=PersonOut,
)
def person(request: HttpRequest, person: Number) -> dict[str, Any]:
    """Show an account."""
    return person_out(found(person))


@operation(
    "GET",
    "/roles",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:roles", "people:role-edit"),
    response=list[RoleOut],
)
def roles(request: HttpRequest) -> Any:
    """List the roles made here."""
    return list(CustomRole.objects.all())


class MaskingRuleOut(Schema):
    """What is hidden in messages of some topics: `kind` says how `what` is read."""

    id: int
    name: str
    topics: list[str]
    kind: str
    what: str


@operation(
    "GET",
    "/masking",
    area="people",
    need=Need.ADMINISTER,
    pages=("masking:list", "masking:edit"),
    response=list[MaskingRuleOut],
)
def masking(request: HttpRequest) -> Any:
    """List the rules that hide parts of messages."""
    return list(MaskingRule.objects.all())
