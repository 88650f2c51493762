"""The pages of custom roles, for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.db.models import Count
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from console.accounts.models import CustomRole
from console.accounts.permissions import administrators_form, administrators_page
from console.accounts.roles import BASE_ACTIONS, MEANINGS, Role
from console.people.accounts.custom_roles import create_role, delete_role, deletion_of, update_role
from console.people.accounts.role_forms import RoleForm
from console.ui.danger import confirmation

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@administrators_page
def listing(request: HttpRequest) -> HttpResponse:
    """Show built-in and custom roles."""
    context = {
        "own": [(each.label, MEANINGS[each], len(BASE_ACTIONS[each])) for each in Role],
        "roles": CustomRole.objects.annotate(count=Count("members")),
    }
    return render(request, "accounts/roles.html", context)


@administrators_form
def create(request: HttpRequest) -> HttpResponse:
    """Create a custom role."""
    form = RoleForm(request.POST or None)
    if request.method != "POST" or not form.is_valid():
        return shown(request, form)
    create_role(request, form)
    messages.success(request, _("Role %(name)s created.") % {"name": form.instance.name})
    return redirect("people:roles")


@administrators_form
def edit(request: HttpRequest, role: int) -> HttpResponse:
    """Change a custom role, starting with the next request of everyone who has it."""
    kept = get_object_or_404(CustomRole, pk=role)
    before = kept.as_kept | {"name": kept.name}
    form = RoleForm(request.POST or None, instance=kept)
    if request.method != "POST" or not form.is_valid():
        return shown(request, form, get_object_or_404(CustomRole, pk=role))
    saved = update_role(request, form, before)
    messages.success(request, _("Role %(name)s changed.") % {"name": saved.name})
    return redirect("people:roles")


def shown(request: HttpRequest, form: RoleForm, role: CustomRole | None = None) -> HttpResponse:
    context = {
        "form": form,
        "kept": role,
        "members": role.members.order_by("username") if role is not None else (),
    }
    return render(request, "accounts/role.html", context, status=422 if form.is_bound else 200)


@administrators_form
def delete(request: HttpRequest, role: int) -> HttpResponse:
    """Delete a custom role; people who have it lose its rights."""
    kept = get_object_or_404(CustomRole, pk=role)
    question = confirmation(request, deletion_of(kept))
    if question is not None:
        return question
    messages.success(request, delete_role(request, kept))
    return redirect("people:roles")
