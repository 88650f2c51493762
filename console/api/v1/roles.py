"""Custom roles and masking rules."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from ninja import Schema

from console.accounts.models import CustomRole
from console.api.operations import Need, operation
from console.api.requestbody import valid_form
from console.api.schemas import Done, DryRun, Number, PlanOut, plan_of
from console.people.accounts import custom_roles
from console.people.accounts.role_forms import RoleForm
from console.people.masking import services as masking_rules
from console.people.masking.forms import RuleForm
from console.people.masking.models import MaskingRule


class RoleOut(Schema):
    """A custom role: actions on topics and groups whose names match its patterns."""

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
    """List custom roles."""
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
    """Create a custom role."""
    return custom_roles.create_role(request, valid_form(request, lambda data: RoleForm(data)))


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
    """Update a custom role, starting with the next request of everyone who has it."""
    kept = get_object_or_404(CustomRole, pk=role)
    before = kept.as_kept | {"name": kept.name}
    form = valid_form(request, lambda data: RoleForm(data, instance=kept))
    return custom_roles.update_role(request, form, before)


@operation(
    "DELETE",
    "/roles/{role}",
    area="people",
    need=Need.ADMINISTER,
    pages=("people:role-delete",),
    response=Done | PlanOut,
)
def role_delete(request: HttpRequest, role: Number, dry_run: DryRun = False) -> Done | PlanOut:
    """Delete a custom role; people who have it lose what only it allows."""
    kept = get_object_or_404(CustomRole, pk=role)
    if dry_run:
        return plan_of(custom_roles.deletion_of(kept))
    return Done(detail=custom_roles.delete_role(request, kept))


class MaskingRuleOut(Schema):
    """A rule that masks parts of some topics' messages; `kind` says how to read `what`."""

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
    """List masking rules."""
    return list(MaskingRule.objects.all())


def masked_sample(form: RuleForm) -> PlanOut:
    """Return the sample with the rule applied; the sample isn't stored."""
    title = _("Rule %(name)s, on the sample") % {"name": form.cleaned_data["name"]}
    return PlanOut(title=title, text=masking_rules.mask_sample(form))


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
    """Create a masking rule; `dry_run` applies it to the sample only."""
    form = valid_form(request, lambda data: RuleForm(data))
    return masked_sample(form) if dry_run else masking_rules.create_rule(request, form)


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
    """Update a masking rule; `dry_run` applies it to the sample only."""
    kept = get_object_or_404(MaskingRule, pk=rule)
    before = kept.as_kept | {"name": kept.name}
    form = valid_form(request, lambda data: RuleForm(data, instance=kept))
    return masked_sample(form) if dry_run else masking_rules.update_rule(request, form, before)


@operation(
    "DELETE",
    "/masking/{rule}",
    area="people",
    need=Need.ADMINISTER,
    pages=("masking:delete",),
    response=Done | PlanOut,
)
def masking_delete(request: HttpRequest, rule: Number, dry_run: DryRun = False) -> Done | PlanOut:
    """Delete a masking rule; people who can read bodies see the values again."""
    kept = get_object_or_404(MaskingRule, pk=rule)
    if dry_run:
        return plan_of(masking_rules.deletion_of(kept))
    return Done(detail=masking_rules.delete_rule(request, kept))
