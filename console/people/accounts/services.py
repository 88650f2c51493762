"""People: find, invite, change and remove them, for the pages and the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts import invitations, second_step, signed_in
from console.accounts.browsers import in_words
from console.accounts.models import INVITATION_LIFETIME, CustomRole, Invitation, SignedIn
from console.accounts.people import (
    LastAdministratorError,
    administrator_remains,
    audit_state,
    is_last_administrator,
    reload_account,
)
from console.accounts.roles import Role, give_role, role_of, stored_roles
from console.accounts.signed_in import ended_sentence
from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from django.contrib.auth.models import User
    from django.http import HttpRequest

    from console.people.accounts.forms import InvitationForm


@dataclass(frozen=True, slots=True)
class Person:
    """An account as pages show it."""

    account: User
    role: Role
    custom_roles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.account.get_username()

    @property
    def signed_in_ms(self) -> int | None:
        return ms_of(self.account.last_login)

    @property
    def joined_ms(self) -> int | None:
        return ms_of(self.account.date_joined)


def ms_of(when: datetime | None) -> int | None:
    return None if when is None else int(when.timestamp() * 1_000)


def get_person(pk: int) -> Person:
    account = get_object_or_404(get_user_model(), pk=pk)
    return Person(account, role_of(account), named(account))


def named(account: User) -> tuple[str, ...]:
    """Return an account's custom roles."""
    return tuple(each.name for each in account.custom_roles.all())


def people_of(accounts: Iterable[User]) -> list[Person]:
    """Return accounts with their roles."""
    every = list(accounts)
    return [
        Person(each, role, named(each))
        for each, role in zip(every, stored_roles(every), strict=True)
    ]


def create_invitation(request: HttpRequest, form: InvitationForm) -> dict[str, Any]:
    """Create the invitation of a form; return it with its link, which isn't stored."""
    name, role = form.cleaned_data["name"], Role(form.cleaned_data["role"])
    mail = form.cleaned_data.get("mail", "")
    custom = list(form.cleaned_data.get("custom_roles", ()))
    after: dict[str, Any] = {"role": role.value, "mail": mail}
    if custom:
        after["custom_roles"] = [each.name for each in custom]
    with change(request, "account.invite", name, after=after):
        invitation, link = invitations.invite(name, role, mail, request.user.get_username(), custom)
    return {
        "invitation": invitation,
        "link": link,
        "days": INVITATION_LIFETIME.days,
        "mail_problem": invitations.send(invitation, link) if mail else "",
    }


def withdrawal_of(invitation: Invitation) -> Danger:
    return Danger(
        title=_("Revoke %(name)s's invitation?") % {"name": invitation.name},
        text=_("The invitation link will stop working."),
        undo=_("You can invite the person again with a new link."),
        action=_("Revoke invitation"),
        keep=_("Cancel"),
        address=reverse("people:withdraw", args=[invitation.pk]),
        back=reverse("people:list"),
    )


def revoke_invitation(request: HttpRequest, invitation: Invitation) -> str:
    """Revoke an invitation; return a sentence for the user."""
    with change(request, "account.withdraw", invitation.name, before={"role": invitation.role}):
        invitation.delete()
    return _("%(name)s's invitation was revoked.") % {"name": invitation.name}


def end_session_of(request: HttpRequest, person: int, session: int) -> str:
    """End a session; return a sentence for the user."""
    row = get_object_or_404(SignedIn, pk=session, user_id=person)
    with change(
        request,
        "account.session-end",
        row.user.get_username(),
        before={"browser": in_words(row.agent), "address": row.address},
    ):
        signed_in.end([row.session_key])
    return _("Session ended.")


def end_sessions_of(request: HttpRequest, account: User, here: str | None) -> str:
    """End all sessions of an account but one; return a sentence for the user."""
    with change(request, "account.sessions-end", account.get_username()) as entry:
        count = signed_in.end_others(account, here)
        entry.after = {"ended": count}
    return ended_sentence(count)


def settle(
    request: HttpRequest,
    account: User,
    action: str,
    *,
    role: Role | None = None,
    custom: Sequence[CustomRole] | None = None,
    enabled: bool | None = None,
) -> None:
    """Change an account's role or state.

    Raises:
        LastAdministratorError: no administrator would remain.
    """
    with change(request, action, account.get_username(), before=audit_state(account)) as entry:
        with administrator_remains():
            if role is not None:
                give_role(account, role)
            if custom is not None:
                account.custom_roles.set(custom)
            if enabled is not None:
                account.is_active = enabled
                account.save(update_fields=["is_active"])
        if enabled is False:
            signed_in.end_others(account, None)
        entry.after = audit_state(reload_account(account.pk))


def removal_of(person: Person) -> Danger:
    """Return the confirmation for deleting an account; the audit log keeps its name."""
    account: Any = person.account
    queries = account.savedquery_set
    refusal = ""
    if is_last_administrator(account):
        refusal = str(LastAdministratorError())
    return Danger(
        title=_("Remove %(name)s?") % {"name": person.name},
        text=_(
            "The person is signed out and can't sign in again. Their actions stay in the audit log."
        ),
        effects=(
            Effect(_("Favourites and saved views"), account.places.count()),
            Effect(_("Their saved queries"), queries.filter(is_shared=False).count()),
            Effect(
                _("Queries shared with others"), queries.filter(is_shared=True).count(), "", True
            ),
        ),
        undo=_("This can't be undone. To keep the data, disable the account instead."),
        action=_("Remove %(name)s") % {"name": person.name},
        keep=_("Keep account"),
        address=reverse("people:remove", args=[account.pk]),
        back=reverse("people:detail", args=[account.pk]),
        name=person.name,
        refusal=refusal,
    )


def remove_person(request: HttpRequest, person: Person) -> str:
    """Delete an account; return a sentence for the user.

    Raises:
        LastAdministratorError: no administrator would remain.
    """
    with (
        change(request, "account.remove", person.name, before=audit_state(person.account)),
        administrator_remains(),
    ):
        person.account.delete()
    return _("%(name)s was removed.") % {"name": person.name}


def remove_second_step(request: HttpRequest, account: User) -> str:
    """Remove an account's second step; return a sentence for the user."""
    name = account.get_username()
    with change(request, "account.second-step-off", name):
        second_step.turn_off(account)
    return _("%(name)s can now sign in with a password alone.") % {"name": name}


def removal_danger(account: User) -> Danger:
    name = account.get_username()
    return Danger(
        title=_("Turn off two-step authentication for %(name)s?") % {"name": name},
        text=_(
            "The password alone will then be enough to sign in. Make sure the request comes from "
            "%(name)s and not from someone who knows the password."
        )
        % {"name": name},
        effects=(Effect(_("Recovery codes that stop working"), second_step.codes_left(account)),),
        undo=_("The person can set it up again with a new key."),
        action=_("Turn off"),
        keep=_("Cancel"),
        address=reverse("people:second-step-off", args=[account.pk]),
        back=reverse("people:detail", args=[account.pk]),
        refusal=""
        if second_step.device_of(account) is not None
        else _("This account doesn't have two-step authentication."),
    )
