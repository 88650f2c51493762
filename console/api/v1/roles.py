"""Roles made here, and what is masked in messages."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from ninja import Schema

from console.accounts import role_views
from console.accounts.models import CustomRole
from console.accounts.role_forms import RoleForm
from console.api.operations import Need, operation
from console.api.requestbody import filled
from console.api.schemas import Done, DryRun, Number, PlanOut, plan_of
from console.masking import views as masking_views
from console.masking.forms import RuleForm
from console.masking.models import MaskingRule


class RoleOut(Schema):
    """A role made here: actions on topics and groups whose names fit its patterns."""

    id: int
    name: str
    description: str
    actions: list[str]
    topics: list[str]
    groups: list[str]


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


@operation(
    "POST",
    "/roles",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:role-create",),
    form=RoleForm,
    response=RoleOut,
    status=201,
)
def role_create(request: HttpRequest) -> CustomRole:
    """Make a role."""
    return role_views.made(request, filled(request, lambda data: RoleForm(data)))


@operation(
    "PATCH",
    "/roles/{role}",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:role-edit",),
    form=RoleForm,
    response=RoleOut,
)
def role_change(request: HttpRequest, role: Number) -> CustomRole:
    """Change what the body names of a role: with the next request of everyone who has it."""
    kept = get_object_or_404(CustomRole, pk=role)
    before = kept.as_kept | {"name": kept.name}
    form = filled(request, lambda data: RoleForm(data, instance=kept))
    return role_views.changed(request, form, before)


@operation(
    "DELETE",
    "/roles/{role}",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:role-delete",),
    response=Done | PlanOut,
)
def role_delete(request: HttpRequest, role: Number, dry_run: DryRun = False) -> Done | PlanOut:
    """Delete a role: whoever has it loses what only it allows."""
    kept = get_object_or_404(CustomRole, pk=role)
    if dry_run:
        return plan_of(role_views.deletion_of(kept))
    return Done(detail=role_views.deleted(request, kept))


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


def tried(form: RuleForm) -> PlanOut:
    """Return what a rule leaves of the sample, which is not kept."""
    title = _("Rule %(name)s, on the sample") % {"name": form.cleaned_data["name"]}
    return PlanOut(title=title, text=masking_views.tried_on_sample(form))


@operation(
    "POST",
    "/masking",
    area="people",
    need=Need.ADMINISTER,
    pages=("masking:create",),
    form=RuleForm,
    response=MaskingRuleOut | PlanOut,
)
def masking_create(request: HttpRequest, dry_run: DryRun = False) -> MaskingRule | PlanOut:
    """Make a rule; `dry_run` tries it on the sample."""
    form = filled(request, lambda data: RuleForm(data))
    return tried(form) if dry_run else masking_views.made(request, form)


@operation(
    "PATCH",
    "/masking/{rule}",
    area="people",
    need=Need.ADMINISTER,
    pages=("masking:edit",),
    form=RuleForm,
    response=MaskingRuleOut | PlanOut,
)
def masking_change(
    request: HttpRequest, rule: Number, dry_run: DryRun = False
) -> MaskingRule | PlanOut:
    """Change what the body names of a rule; `dry_run` tries it on the sample."""
    kept = get_object_or_404(MaskingRule, pk=rule)
    before = kept.as_kept | {"name": kept.name}
    form = filled(request, lambda data: RuleForm(data, instance=kept))
    return tried(form) if dry_run else masking_views.changed(request, form, before)


@operation(
    "DELETE",
    "/masking/{rule}",
    area="people",
    need=Need.ADMINISTER,
    pages=("masking:delete",),
    response=Done | PlanOut,
)
def masking_delete(request: HttpRequest, rule: Number, dry_run: DryRun = False) -> Done | PlanOut:
    """Delete a rule: what it hides is shown again to all who read bodies."""
    kept = get_object_or_404(MaskingRule, pk=rule)
    if dry_run:
        return plan_of(masking_views.deletion_of(kept))
    return Done(detail=masking_views.deleted(request, kept))
