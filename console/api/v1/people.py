"""People: accounts, roles, sessions and invitations."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from ninja import Schema

from console.accounts.models import CustomRole, Invitation
from console.accounts.people import LastAdministratorError, reload_account
from console.accounts.roles import Role
from console.accounts.signed_in import sessions_of
from console.api.frame import omit_stored_body
from console.api.operations import Need, operation
from console.api.problems import ProblemError
from console.api.requestbody import json_object, valid_form
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
    plan_of,
)
from console.people.accounts import services
from console.people.accounts.forms import InvitationForm
from console.people.accounts.services import (
    Person,
    get_person,
    ms_of,
    people_of,
    removal_danger,
    remove_second_step,
)


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
    """List accounts, newest first."""
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
    """Get an account."""
    return person_out(get_person(person))


class SessionOut(Schema):
    """A signed-in browser session."""

    id: int
    since_ms: int
    seen_ms: int
    ends_ms: int
    address: str
    browser: str


class InvitationOut(Schema):
    """An invitation that hasn't been accepted."""

    id: int
    name: str
    role: str
    roles: list[str]
    by: str
    made_ms: int | None
    expires_ms: int | None


class InvitedOut(InvitationOut):
    """A new invitation; its link is only in this response."""

    link: str
    mail_problem: str


ROLES: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "role": {"enum": list(Role.values), "description": "A built-in role."},
        "roles": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Names of all custom roles the person should have.",
        },
    },
}
SWITCH: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["enabled"],
    "properties": {"enabled": {"type": "boolean", "description": "Whether they can sign in."}},
}


def unprocessable(detail: str) -> ProblemError:
    return ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail)


def custom_roles(names: object) -> list[CustomRole]:
    """Return the roles with these names.

    Raises:
        ProblemError: a role doesn't exist.
    """
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise unprocessable(_("roles must be a list of names."))
    known = {each.name: each for each in CustomRole.objects.all()}
    if unknown := sorted(set(names) - set(known)):
        raise unprocessable(_("There's no role named %(name)s.") % {"name": unknown[0]})
    return [known[each] for each in dict.fromkeys(names)]


def change_account(request: HttpRequest, person: int, action: str, **wanted: Any) -> dict[str, Any]:
    account = get_person(person).account
    try:
        services.settle(request, account, action, **wanted)
    except LastAdministratorError as error:
        raise ProblemError(HTTPStatus.CONFLICT, str(error)) from error
    return person_out(get_person(reload_account(account.pk).pk))


@operation(
    "PATCH",
    "/people/{person}",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:role",),
    body=ROLES,
    response=PersonOut,
)
def person_change(request: HttpRequest, person: Number) -> dict[str, Any]:
    """Change a person's roles, starting with their next request."""
    asked = json_object(request, tuple(ROLES["properties"]))
    role, names = asked.get("role"), asked.get("roles")
    if role is not None and role not in Role.values:
        raise unprocessable(_("This role doesn't exist."))
    return change_account(
        request,
        person,
        "account.role",
        role=None if role is None else Role(role),
        custom=None if names is None else custom_roles(names),
    )


@operation(
    "POST",
    "/people/{person}/switch",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:switch",),
    body=SWITCH,
    response=PersonOut,
)
def person_switch(request: HttpRequest, person: Number) -> dict[str, Any]:
    """Enable or disable a person; disabling ends their sessions at once."""
    enabled = json_object(request, tuple(SWITCH["properties"])).get("enabled")
    if not isinstance(enabled, bool):
        raise unprocessable(_("enabled must be true or false."))
    return change_account(request, person, "account.switch", enabled=enabled)


@operation(
    "DELETE",
    "/people/{person}",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:remove",),
    response=Done | PlanOut,
)
def person_remove(request: HttpRequest, person: Number, dry_run: DryRun = False) -> Done | PlanOut:
    """Delete an account and everything that belongs only to it."""
    shown = get_person(person)
    danger = services.removal_of(shown)
    if dry_run:
        return plan_of(danger)
    if danger.refusal:
        raise ProblemError(HTTPStatus.CONFLICT, danger.refusal)
    try:
        return Done(detail=services.remove_person(request, shown))
    except LastAdministratorError as error:
        raise ProblemError(HTTPStatus.CONFLICT, str(error)) from error


@operation(
    "POST",
    "/people/{person}/second-step/off",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:second-step-off",),
    response=Done | PlanOut,
)
def person_second_step_off(
    request: HttpRequest, person: Number, dry_run: DryRun = False
) -> Done | PlanOut:
    """Turn off two-step sign-in for an account whose app and recovery codes are lost."""
    account = get_person(person).account
    danger = removal_danger(account)
    if dry_run:
        return plan_of(danger)
    if danger.refusal:
        raise ProblemError(HTTPStatus.CONFLICT, danger.refusal)
    return Done(detail=remove_second_step(request, account))


@operation(
    "GET",
    "/people/{person}/sessions",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:detail",),
    response=list[SessionOut],
)
def person_sessions(request: HttpRequest, person: Number) -> list[dict[str, Any]]:
    """List a person's sessions, most recently used first."""
    return [
        {
            "id": each.pk,
            "since_ms": each.since_ms,
            "seen_ms": each.seen_ms,
            "ends_ms": each.ends_ms,
            "address": each.address,
            "browser": each.browser,
        }
        for each in sessions_of(get_person(person).account, None)
    ]


@operation(
    "DELETE",
    "/people/{person}/sessions",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:sessions-end",),
    response=Done,
)
def person_sessions_end(request: HttpRequest, person: Number) -> Done:
    """Sign a person out everywhere."""
    return Done(detail=services.end_sessions_of(request, get_person(person).account, None))


@operation(
    "DELETE",
    "/people/{person}/sessions/{session}",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:session-end",),
    response=Done,
)
def person_session_end(request: HttpRequest, person: Number, session: Number) -> Done:
    """End one of a person's sessions."""
    return Done(detail=services.end_session_of(request, person, session))


def invitation_out(invitation: Invitation) -> dict[str, Any]:
    return {
        "id": invitation.pk,
        "name": invitation.name,
        "role": invitation.role,
        "roles": [each.name for each in invitation.custom_roles.all()],
        "by": invitation.by,
        "made_ms": ms_of(invitation.made_at),
        "expires_ms": ms_of(invitation.expires_at),
    }


@operation(
    "GET",
    "/invitations",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:list",),
    response=list[InvitationOut],
)
def invitations(request: HttpRequest) -> list[dict[str, Any]]:
    """List invitations that haven't been accepted."""
    return [invitation_out(each) for each in Invitation.objects.all()]


@operation(
    "POST",
    "/invitations",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:invite",),
    form=InvitationForm,
    response=InvitedOut,
    status=201,
)
def invitation_make(request: HttpRequest) -> dict[str, Any]:
    """Invite someone; the link is only in this response."""
    form = valid_form(
        request, lambda data: InvitationForm(data, has_mail=bool(settings.EMAIL_HOST))
    )
    omit_stored_body(request)
    made = services.create_invitation(request, form)
    mail_problem = made["mail_problem"]
    return {
        **invitation_out(made["invitation"]),
        "link": made["link"],
        "mail_problem": mail_problem,
    }


@operation(
    "DELETE",
    "/invitations/{invitation}",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:withdraw",),
    response=Done | PlanOut,
)
def invitation_withdraw(
    request: HttpRequest, invitation: Number, dry_run: DryRun = False
) -> Done | PlanOut:
    """Revoke an invitation; its link stops working."""
    kept = get_object_or_404(Invitation, pk=invitation)
    if dry_run:
        return plan_of(services.withdrawal_of(kept))
    return Done(detail=services.revoke_invitation(request, kept))
