"""Pages of the roles that are made here, for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.db.models import Count
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.models import CustomRole
from console.accounts.permissions import administrators_form, administrators_page
from console.accounts.role_forms import RoleForm
from console.accounts.roles import BASE_ACTIONS, MEANINGS, Role
from console.audit.record import change
from console.ui.danger import Danger, Effect, unanswered

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@administrators_page
def listing(request: HttpRequest) -> HttpResponse:
    """Show the console's own roles, and those made here."""
    context = {
        "own": [(each.label, MEANINGS[each], len(BASE_ACTIONS[each])) for each in Role],
        "roles": CustomRole.objects.annotate(count=Count("members")),
    }
    return render(request, "accounts/roles.html", context)


@administrators_form
def create(request: HttpRequest) -> HttpResponse:
    """Make a role."""
    form = RoleForm(request.POST or None)
    if request.method != "POST" or not form.is_valid():
        return shown(request, form)
    made(request, form)
    messages.success(request, _("Role %(name)s is made.") % {"name": form.instance.name})
    return redirect("people:roles")


def made(request: HttpRequest, form: RoleForm) -> CustomRole:
    with change(request, "role.create", form.cleaned_data["name"]) as entry:
        role: CustomRole = form.save()
        entry.after = role.as_kept
    return role


@administrators_form
def edit(request: HttpRequest, role: int) -> HttpResponse:
    """Change a role: with the next request of everyone who has it."""
    kept = get_object_or_404(CustomRole, pk=role)
    before = kept.as_kept | {"name": kept.name}
    form = RoleForm(request.POST or None, instance=kept)
    if request.method != "POST" or not form.is_valid():
        return shown(request, form, get_object_or_404(CustomRole, pk=role))
    saved = changed(request, form, before)
    messages.success(request, _("Role %(name)s is changed.") % {"name": saved.name})
    return redirect("people:roles")


def changed(request: HttpRequest, form: RoleForm, before: dict[str, Any]) -> CustomRole:
    with change(request, "role.update", before["name"], before=before) as entry:
        role: CustomRole = form.save()
        entry.after = role.as_kept | {"name": role.name}
    return role


def shown(request: HttpRequest, form: RoleForm, role: CustomRole | None = None) -> HttpResponse:
    context = {
        "form": form,
        "kept": role,
        "members": role.members.order_by("username") if role is not None else (),
    }
    return render(request, "accounts/role.html", context, status=422 if form.is_bound else 200)


@administrators_form
def delete(request: HttpRequest, role: int) -> HttpResponse:
    """Delete a role: whoever has it loses what it allows."""
    kept = get_object_or_404(CustomRole, pk=role)
    question = unanswered(request, deletion_of(kept))
    if question is not None:
        return question
    messages.success(request, deleted(request, kept))
    return redirect("people:roles")


def deleted(request: HttpRequest, role: CustomRole) -> str:
    """Delete a role; return what was done."""
    before = role.as_kept | {"members": [str(each) for each in role.members.all()]}
    with change(request, "role.delete", role.name, before=before):
        role.delete()
    return _("Role %(name)s is deleted.") % {"name": role.name}


def deletion_of(role: CustomRole) -> Danger:
    return Danger(
        title=_("Delete role %(name)s?") % {"name": role.name},
        text=_("Whoever has it loses at once what only this role allows."),
        effects=(
            Effect(_("People who have it"), role.members.count(), "", True),
            Effect(_("Invitations with it"), role.invitations.count()),
        ),
        undo=_("This cannot be undone; the audit keeps what the role allowed, and whom."),
        action=_("Delete role"),
        keep=_("Keep it"),
        address=reverse("people:role-delete", args=[role.pk]),
        back=reverse("people:role-edit", args=[role.pk]),
        name=role.name,
    )
