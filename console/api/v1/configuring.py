"""Plans for topics and groups, built from a request body, then previewed or applied."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from django.core import signing
from django.utils.translation import gettext as _
from pydantic import Field

from console.accounts.permissions import require
from console.api.plans import changes_of, overtaken, unchanged
from console.api.problems import ProblemError
from console.api.requestbody import valid_form
from console.api.schemas import Done, PlanOut, plan_of
from console.broker.configs.plan import Plan, sealed_state
from console.broker.configs.services import (
    PlanRefusedError,
    master_names,
    refuse_system,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest

    from console.broker.configs.services import ConfigService, Configured
    from console.people.audit.models import Entry
    from console.ui.danger import Danger

Accept = Annotated[bool, Field(description="Apply the change despite the plan's `objection`.")]
Seen = Annotated[
    str,
    Field(
        max_length=100_000,
        description="`seen` from a dry run, to detect concurrent changes.",
    ),
]


def make(
    request: HttpRequest, service: ConfigService, *, dry_run: bool, accept: bool
) -> Done | PlanOut:
    """Create a topic or group from the body."""
    brokers = master_names()
    form = valid_form(request, lambda data: service.new_form(data, brokers))
    require(request, service.action, form.name)
    return preview_or_apply(request, service, service.making(form), dry_run=dry_run, accept=accept)


def change(
    request: HttpRequest,
    service: ConfigService,
    subject: Configured,
    seen: str,
    *,
    dry_run: bool,
    accept: bool,
) -> Done | PlanOut:
    """Change the fields in the body; leave the others as they are."""
    refuse_system(subject)
    if not subject.configs:
        detail = _("No broker has a configuration for %(name)s. Create it first.")
        raise ProblemError(HTTPStatus.CONFLICT, detail % {"name": subject.name})
    form = valid_form(request, lambda data: service.change_form(data, subject))
    try:
        plan = service.changing(subject, form, seen)
    except signing.BadSignature as error:
        detail = _("`seen` didn't come from this console.")
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from error
    return preview_or_apply(request, service, plan, dry_run=dry_run, accept=accept)


def preview_or_apply(
    request: HttpRequest, service: ConfigService, plan: Plan, *, dry_run: bool, accept: bool
) -> Done | PlanOut:
    """Preview a plan, or apply it."""
    if dry_run:
        return shown(service, plan)
    if plan.is_idle:
        return unchanged()
    if plan.is_overtaken:
        raise overtaken(changes_of(plan))
    try:
        entry = service.carry_out(request, plan, is_accepted=accept)
    except PlanRefusedError as error:
        more = {"refusal": error.refusal, "objection": error.objection}
        raise ProblemError(HTTPStatus.CONFLICT, str(error), more=more) from error
    return Done(detail=service.success_message(plan), entry=entry.pk)


def shown(service: ConfigService, plan: Plan) -> PlanOut:
    refusal, objection = (None, None) if plan.is_idle else service.objections(plan)
    return PlanOut(
        title=f"{service.kind}.{plan.verb} {plan.name}",
        refusal=refusal or "",
        objection=objection or "",
        changes=changes_of(plan),
        seen=sealed_state(plan.now, plan.kind),
    )


def delete(
    request: HttpRequest,
    service: ConfigService,
    subject: Configured,
    danger: Danger,
    act: Callable[[], Entry],
    *,
    dry_run: bool,
) -> Done | PlanOut:
    """Delete a topic or group, unless the plan refuses it."""
    refuse_system(subject)
    if dry_run:
        return plan_of(danger)
    if danger.refusal:
        raise ProblemError(HTTPStatus.CONFLICT, danger.refusal)
    return Done(detail=str(service.words.deleted) % {"name": subject.name}, entry=act().pk)
