"""The people pages for administrators: accounts, roles, invitations and sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _, gettext_lazy

from console.accounts import second_step
from console.accounts.models import CustomRole, Invitation
from console.accounts.people import (
    LastAdministratorError,
    is_last_administrator,
)
from console.accounts.permissions import (
    administrators_action,
    administrators_form,
    administrators_page,
)
from console.accounts.roles import MEANINGS, Role
from console.accounts.signed_in import sessions_of
from console.lib.lists import page_of, search_text
from console.lib.tables import Column, Table
from console.people.accounts.forms import InvitationForm
from console.people.accounts.services import (
    create_invitation,
    end_session_of,
    end_sessions_of,
    get_person,
    ms_of,
    people_of,
    removal_of,
    remove_person,
    revoke_invitation,
    settle,
    withdrawal_of,
)
from console.people.audit.models import Entry
from console.ui.danger import confirmation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


KEYS = {
    "name": lambda person: person.name.casefold(),
    "role": lambda person: list(Role).index(person.role),
    "state": lambda person: person.account.is_active,
    "signed_in": lambda person: person.signed_in_ms,
    "joined": lambda person: person.joined_ms,
}


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


@administrators_form
def withdraw(request: HttpRequest, invitation: int) -> HttpResponse:
    kept = get_object_or_404(Invitation, pk=invitation)
    question = confirmation(request, withdrawal_of(kept))
    if question is not None:
        return question
    messages.success(request, revoke_invitation(request, kept))
    return redirect("people:list")


@administrators_page
def detail(request: HttpRequest, person: int) -> HttpResponse:
    shown = get_person(person)
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
    account = get_person(person).account
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


@administrators_action
def end_sessions(request: HttpRequest, person: int) -> HttpResponse:
    """End all sessions of a person; for yourself, all but the current one."""
    account = get_person(person).account
    here = request.session.session_key if account.pk == request.user.pk else None
    messages.success(request, end_sessions_of(request, account, here))
    return redirect("people:detail", person)


@administrators_action
def switch(request: HttpRequest, person: int) -> HttpResponse:
    """Enable or disable an account; disabling ends its sessions at once."""
    enabled = request.POST.get("enabled") == "on"
    return show_change(request, get_person(person).account, "account.switch", enabled=enabled)


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


@administrators_form
def remove(request: HttpRequest, person: int) -> HttpResponse:
    shown = get_person(person)
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
