"""The people pages for administrators: accounts, roles, invitations and sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy

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
from console.accounts.permissions import (
    administrators_action,
    administrators_form,
    administrators_page,
)
from console.accounts.roles import MEANINGS, Role, give_role, role_of, stored_roles
from console.accounts.signed_in import ended_sentence, sessions_of
from console.lib.lists import page_of, search_text
from console.lib.tables import Column, Table
from console.people.accounts.forms import InvitationForm
from console.people.audit.models import Entry
from console.people.audit.record import change
from console.ui.danger import Danger, Effect, confirmation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse

LAST_ENTRIES = 10
COLUMNS = (
    Column("name", gettext_lazy("Name"), is_sorted=True),
    Column("role", gettext_lazy("Role"), is_sorted=True, is_fact=True),
    Column("state", gettext_lazy("State"), is_sorted=True, is_fact=True),
    Column("signed_in", gettext_lazy("Last sign-in"), is_sorted=True, is_fact=True),
    Column("joined", gettext_lazy("Account created"), is_sorted=True),
)


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


KEYS = {
    "name": lambda person: person.name.casefold(),
    "role": lambda person: list(Role).index(person.role),
    "state": lambda person: person.account.is_active,
    "signed_in": lambda person: person.signed_in_ms,
    "joined": lambda person: person.joined_ms,
}


def ms_of(when: datetime | None) -> int | None:
    return None if when is None else int(when.timestamp() * 1_000)


def found(pk: int) -> Person:
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


@administrators_page
def listing(request: HttpRequest) -> HttpResponse:
    query = search_text(request)
    accounts = get_user_model().objects.filter(username__icontains=query)
    accounts = accounts.prefetch_related("custom_roles")
    table = Table(request, COLUMNS, sort="name")
    page = page_of(request, table.sorted(people_of(accounts), KEYS))
    invited = [
        {
            "invitation": each,
            "made_ms": ms_of(each.made_at),
            "expires_ms": ms_of(each.expires_at),
        }
        for each in Invitation.objects.all()
    ]
    context = {
        "table": table,
        "rows": page.object_list,
        "page": page,
        "query": query,
        "is_narrowed": bool(query),
        "invited": invited,
    }
    return render(request, "accounts/people.html", context)


@administrators_form
def invite(request: HttpRequest) -> HttpResponse:
    """Ask whom to invite, then show the link once."""
    form = InvitationForm(request.POST or None, has_mail=bool(settings.EMAIL_HOST))
    if request.method != "POST" or not form.is_valid():
        status = 422 if form.is_bound else 200
        context = {"form": form, "meanings": [(each.label, MEANINGS[each]) for each in Role]}
        return render(request, "accounts/invite.html", context, status=status)
    return render(request, "accounts/invited.html", create_invitation(request, form))


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


@administrators_form
def withdraw(request: HttpRequest, invitation: int) -> HttpResponse:
    kept = get_object_or_404(Invitation, pk=invitation)
    question = confirmation(request, withdrawal_of(kept))
    if question is not None:
        return question
    messages.success(request, revoke_invitation(request, kept))
    return redirect("people:list")


def revoke_invitation(request: HttpRequest, invitation: Invitation) -> str:
    """Revoke an invitation; return a sentence for the user."""
    with change(request, "account.withdraw", invitation.name, before={"role": invitation.role}):
        invitation.delete()
    return _("%(name)s's invitation was revoked.") % {"name": invitation.name}


@administrators_page
def detail(request: HttpRequest, person: int) -> HttpResponse:
    shown = found(person)
    context = {
        "person": shown,
        "roles": [(each.value, each.label, MEANINGS[each]) for each in Role],
        "custom_roles": [
            (each, each.name in shown.custom_roles) for each in CustomRole.objects.all()
        ],
        "is_last": is_last_administrator(shown.account),
        "may_query": shown.account.has_perm("sql.query_lake"),
        "sessions": sessions_of(shown.account, request.session.session_key),
        "is_own": shown.account.pk == request.user.pk,
        "has_second_step": second_step.device_of(shown.account) is not None,
        "entries": [
            (each, ms_of(each.at))
            for each in Entry.objects.filter(actor=shown.account)[:LAST_ENTRIES]
        ],
    }
    return render(request, "accounts/person.html", context)


@administrators_action
def change_role(request: HttpRequest, person: int) -> HttpResponse:
    account = found(person).account
    wanted = request.POST.get("role", "")
    if wanted not in Role.values:
        messages.error(request, _("This role doesn't exist."))
        return redirect("people:detail", person)
    # Only existing ones: a form opened earlier may list roles that were deleted.
    custom = CustomRole.objects.filter(pk__in=whole_numbers(request.POST.getlist("custom_role")))
    return show_change(request, account, "account.role", role=Role(wanted), custom=list(custom))


def whole_numbers(texts: Iterable[str]) -> list[int]:
    return [int(each) for each in texts if each.isascii() and each.isdecimal() and len(each) < 19]


@administrators_action
def end_session(request: HttpRequest, person: int, session: int) -> HttpResponse:
    """End one of a person's sessions."""
    messages.success(request, end_session_of(request, person, session))
    return redirect("people:detail", person)


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


@administrators_action
def end_sessions(request: HttpRequest, person: int) -> HttpResponse:
    """End all sessions of a person; for yourself, all but the current one."""
    account = found(person).account
    here = request.session.session_key if account.pk == request.user.pk else None
    messages.success(request, end_sessions_of(request, account, here))
    return redirect("people:detail", person)


def end_sessions_of(request: HttpRequest, account: User, here: str | None) -> str:
    """End all sessions of an account but one; return a sentence for the user."""
    with change(request, "account.sessions-end", account.get_username()) as entry:
        count = signed_in.end_others(account, here)
        entry.after = {"ended": count}
    return ended_sentence(count)


@administrators_action
def switch(request: HttpRequest, person: int) -> HttpResponse:
    """Enable or disable an account; disabling ends its sessions at once."""
    enabled = request.POST.get("enabled") == "on"
    return show_change(request, found(person).account, "account.switch", enabled=enabled)


def show_change(
    request: HttpRequest,
    account: User,
    action: str,
    *,
    role: Role | None = None,
    custom: Sequence[CustomRole] | None = None,
    enabled: bool | None = None,
) -> HttpResponse:
    """Change an account's role or state, then show the result or the error."""
    try:
        settle(request, account, action, role=role, custom=custom, enabled=enabled)
    except LastAdministratorError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, _("%(name)s was changed.") % {"name": account.get_username()})
    return redirect("people:detail", account.pk)


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


@administrators_form
def remove(request: HttpRequest, person: int) -> HttpResponse:
    shown = found(person)
    danger = removal_of(shown)
    question = confirmation(request, danger)
    if question is not None:
        return question
    try:
        text = remove_person(request, shown)
    except LastAdministratorError as error:
        messages.error(request, str(error))
        return redirect("people:detail", person)
    messages.success(request, text)
    return redirect("people:list")


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
