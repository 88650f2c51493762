"""Pages of people, for administrators: who may sign in, as what, since when."""

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
from console.accounts.forms import InvitationForm
from console.accounts.models import INVITATION_LIFETIME, CustomRole, Invitation, SignedIn
from console.accounts.people import (
    LastAdministratorError,
    administrator_remains,
    audited,
    fresh,
    is_last_administrator,
)
from console.accounts.permissions import (
    administrators_action,
    administrators_form,
    administrators_page,
)
from console.accounts.roles import MEANINGS, Role, give_role, role_of, stored_roles
from console.accounts.signed_in import ended_in_words, sessions_of
from console.audit.models import Entry
from console.audit.record import change
from console.ui.danger import Danger, Effect, unanswered
from console.ui.lists import asked_text, page_of
from console.ui.tables import Column, Table

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
    Column("signed_in", gettext_lazy("Last signed in"), is_sorted=True, is_fact=True),
    Column("joined", gettext_lazy("Account since"), is_sorted=True),
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
    """Return the roles made here that an account has."""
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
    query = asked_text(request)
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
    """Ask whom to invite; then show the link, this once."""
    form = InvitationForm(request.POST or None, has_mail=bool(settings.EMAIL_HOST))
    if request.method != "POST" or not form.is_valid():
        status = 422 if form.is_bound else 200
        context = {"form": form, "meanings": [(each.label, MEANINGS[each]) for each in Role]}
        return render(request, "accounts/invite.html", context, status=status)
    return render(request, "accounts/invited.html", invited(request, form))


def invited(request: HttpRequest, form: InvitationForm) -> dict[str, Any]:
    """Invite whom a form names; return the invitation with its link, which is not kept."""
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
        title=_("Take back the invitation of %(name)s?") % {"name": invitation.name},
        text=_("Its link opens nothing any more."),
        undo=_("The person can be invited anew, with another link."),
        action=_("Take it back"),
        keep=_("Keep it"),
        address=reverse("people:withdraw", args=[invitation.pk]),
        back=reverse("people:list"),
    )


@administrators_form
def withdraw(request: HttpRequest, invitation: int) -> HttpResponse:
    kept = get_object_or_404(Invitation, pk=invitation)
    question = unanswered(request, withdrawal_of(kept))
    if question is not None:
        return question
    messages.success(request, withdrawn(request, kept))
    return redirect("people:list")


def withdrawn(request: HttpRequest, invitation: Invitation) -> str:
    """Take an invitation back; return what was done."""
    with change(request, "account.withdraw", invitation.name, before={"role": invitation.role}):
        invitation.delete()
    return _("The invitation of %(name)s is void.") % {"name": invitation.name}


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
        messages.error(request, _("There is no such role."))
        return redirect("people:detail", person)
    # Of those that are there; a form from before there were any names none.
    custom = CustomRole.objects.filter(pk__in=whole_numbers(request.POST.getlist("custom_role")))
    return changed(request, account, "account.role", role=Role(wanted), custom=list(custom))


def whole_numbers(texts: Iterable[str]) -> list[int]:
    return [int(each) for each in texts if each.isascii() and each.isdecimal() and len(each) < 19]


@administrators_action
def end_session(request: HttpRequest, person: int, session: int) -> HttpResponse:
    """End one session of somebody."""
    messages.success(request, session_ended(request, person, session))
    return redirect("people:detail", person)


def session_ended(request: HttpRequest, person: int, session: int) -> str:
    """End a session; return what was done."""
    row = get_object_or_404(SignedIn, pk=session, user_id=person)
    with change(
        request,
        "account.session-end",
        row.user.get_username(),
        before={"browser": in_words(row.agent), "address": row.address},
    ):
        signed_in.end([row.session_key])
    return _("The session is ended.")


@administrators_action
def end_sessions(request: HttpRequest, person: int) -> HttpResponse:
    """End all sessions of somebody; of one's own, all but this one."""
    account = found(person).account
    here = request.session.session_key if account.pk == request.user.pk else None
    messages.success(request, sessions_ended(request, account, here))
    return redirect("people:detail", person)


def sessions_ended(request: HttpRequest, account: User, here: str | None) -> str:
    """End all sessions of an account but one; return what was done."""
    with change(request, "account.sessions-end", account.get_username()) as entry:
        count = signed_in.end_others(account, here)
        entry.after = {"ended": count}
    return ended_in_words(count)


@administrators_action
def switch(request: HttpRequest, person: int) -> HttpResponse:
    """Let an account sign in, or no longer: its sessions end at once."""
    enabled = request.POST.get("enabled") == "on"
    return changed(request, found(person).account, "account.switch", enabled=enabled)


def changed(
    request: HttpRequest,
    account: User,
    action: str,
    *,
    role: Role | None = None,
    custom: Sequence[CustomRole] | None = None,
    enabled: bool | None = None,
) -> HttpResponse:
    """Give an account a role or a state, and show it, or why that cannot be."""
    try:
        settle(request, account, action, role=role, custom=custom, enabled=enabled)
    except LastAdministratorError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, _("%(name)s is changed.") % {"name": account.get_username()})
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
    """Give an account a role or a state.

    Raises:
        LastAdministratorError: nobody could see to people any more.
    """
    with change(request, action, account.get_username(), before=audited(account)) as entry:
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
        entry.after = audited(fresh(account.pk))


def removal_of(person: Person) -> Danger:
    """Return what goes with an account; the audit keeps its name."""
    account: Any = person.account
    queries = account.savedquery_set
    refusal = ""
    if is_last_administrator(account):
        refusal = str(LastAdministratorError())
    return Danger(
        title=_("Remove %(name)s?") % {"name": person.name},
        text=_("The person is signed out and cannot come back. The audit keeps what they did."),
        effects=(
            Effect(_("Favourites and saved views"), account.places.count()),
            Effect(_("Queries of their own"), queries.filter(is_shared=False).count()),
            Effect(_("Queries that others use"), queries.filter(is_shared=True).count(), "", True),
        ),
        undo=_("This cannot be undone. To keep all of it, switch the account off instead."),
        action=_("Remove %(name)s") % {"name": person.name},
        keep=_("Keep the account"),
        address=reverse("people:remove", args=[account.pk]),
        back=reverse("people:detail", args=[account.pk]),
        name=person.name,
        refusal=refusal,
    )


@administrators_form
def remove(request: HttpRequest, person: int) -> HttpResponse:
    shown = found(person)
    danger = removal_of(shown)
    question = unanswered(request, danger)
    if question is not None:
        return question
    try:
        said = removed(request, shown)
    except LastAdministratorError as error:
        messages.error(request, str(error))
        return redirect("people:detail", person)
    messages.success(request, said)
    return redirect("people:list")


def removed(request: HttpRequest, person: Person) -> str:
    """Remove an account; return what was done.

    Raises:
        LastAdministratorError: nobody could see to people any more.
    """
    with (
        change(request, "account.remove", person.name, before=audited(person.account)),
        administrator_remains(),
    ):
        person.account.delete()
    return _("%(name)s is removed.") % {"name": person.name}
