"""Custom roles: create, change and delete them, for the pages and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils.translation import gettext as _

from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from django.http import HttpRequest

    from console.accounts.models import CustomRole
    from console.people.accounts.role_forms import RoleForm


def create_role(request: HttpRequest, form: RoleForm) -> CustomRole:
    with change(request, "role.create", form.cleaned_data["name"]) as entry:
        role: CustomRole = form.save()
        entry.after = role.as_kept
    return role


def update_role(request: HttpRequest, form: RoleForm, before: dict[str, Any]) -> CustomRole:
    with change(request, "role.update", before["name"], before=before) as entry:
        role: CustomRole = form.save()
        entry.after = role.as_kept | {"name": role.name}
    return role


def delete_role(request: HttpRequest, role: CustomRole) -> str:
    """Delete a custom role; return a sentence for the user."""
    before = role.as_kept | {"members": [str(each) for each in role.members.all()]}
    with change(request, "role.delete", role.name, before=before):
        role.delete()
    return _("Role %(name)s deleted.") % {"name": role.name}


def deletion_of(role: CustomRole) -> Danger:
    return Danger(
        title=_("Delete role %(name)s?") % {"name": role.name},
        text=_("People with this role immediately lose what only this role allows."),
        effects=(
            Effect(_("People with this role"), role.members.count(), "", True),
            Effect(_("Invitations with this role"), role.invitations.count()),
        ),
        undo=_("This can't be undone. The audit log keeps the role's permissions and members."),
        action=_("Delete role"),
        keep=_("Cancel"),
        address=reverse("people:role-delete", args=[role.pk]),
        back=reverse("people:role-edit", args=[role.pk]),
        name=role.name,
    )
