"""Plans for topics and groups, built from a request body, then previewed or applied."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from django.core import signing
from django.utils.translation import gettext as _
from pydantic import Field

from console.accounts.permissions import require
from console.api.problems import ProblemError
from console.api.requestbody import valid_form
from console.api.schemas import Done, PlanOut, plan_of
from console.broker.configs.pages import (
    PlanRefusedError,
    making,
    on,
    refuse_system,
    state_of,
    wanted_by,
)
from console.broker.configs.plan import Plan, sealed_state, unsealed_state
from console.gateway.access import gateway

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest

    from console.broker.configs.pages import ConfigPages, Configured
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
    request: HttpRequest, pages: ConfigPages, *, dry_run: bool, accept: bool
) -> Done | PlanOut:
    """Create a topic or group from the body."""
    masters = [node.broker_name for node in gateway().cluster.registered().masters]
    form = valid_form(
        request,
        lambda data: pages.form(data, broker_names=masters, used_names=pages.requests.every()),
    )
    require(request, pages.action, form.name)
    return preview_or_apply(
        request, pages, making(form, pages.kind), dry_run=dry_run, accept=accept
    )


def change(
    request: HttpRequest,
    pages: ConfigPages,
    subject: Configured,
    seen: str,
    *,
    dry_run: bool,
    accept: bool,
) -> Done | PlanOut:
    """Change the fields in the body; leave the others as they are."""
    refuse_system(subject)
    original = next(iter(subject.configs.values()), None)
    if original is None:
        detail = _("No broker has a configuration for %(name)s. Create it first.")
        raise ProblemError(HTTPStatus.CONFLICT, detail % {"name": subject.name})
    brokers = list(subject.configs)
    form = valid_form(
        request,
        lambda data: pages.form(data, broker_names=brokers, original=original),
    )
    now, wanted = state_of(subject), wanted_by(form)
    before = opened_on(seen, pages.kind) if seen else now
    plan = Plan(subject.name, on(wanted, before), on(wanted, now), wanted, kind=pages.kind)
    return preview_or_apply(request, pages, plan, dry_run=dry_run, accept=accept)


def opened_on(seen: str, kind: str) -> Any:
    try:
        return unsealed_state(seen, kind)
    except signing.BadSignature as error:
        detail = _("`seen` didn't come from this console.")
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from error


def preview_or_apply(
    request: HttpRequest, pages: ConfigPages, plan: Plan, *, dry_run: bool, accept: bool
) -> Done | PlanOut:
    """Preview a plan, or apply it."""
    if dry_run:
        return shown(pages, plan)
    if plan.is_idle:
        return Done(detail=_("The account already has these values, so nothing was changed."))
    if plan.is_overtaken:
        detail = _("Someone else made a change in the meantime, so nothing was changed.")
        raise ProblemError(HTTPStatus.CONFLICT, detail, more=changes_of(plan))
    try:
        entry = pages.carry_out(request, plan, is_accepted=accept)
    except PlanRefusedError as error:
        more = {"refusal": error.refusal, "objection": error.objection}
        raise ProblemError(HTTPStatus.CONFLICT, str(error), more=more) from error
    return Done(detail=pages.success_message(plan), entry=entry.pk)


def shown(pages: ConfigPages, plan: Plan) -> PlanOut:
    refusal, objection = (None, None) if plan.is_idle else pages.objections(plan)
    return PlanOut(
        title=f"{pages.kind}.{plan.verb} {plan.name}",
        refusal=refusal or "",
        objection=objection or "",
        changes=changes_of(plan),
        seen=sealed_state(plan.now, plan.kind),
    )


def changes_of(plan: Plan) -> dict[str, Any]:
    return {"seen": plan.seen, "now": plan.now, "wanted": plan.wanted}


def delete(
    request: HttpRequest,
    pages: ConfigPages,
    subject: Configured,
    danger: Danger,
    act: Callable[[], None],
    before: Callable[[], Any],
    after: Any = None,
    *,
    dry_run: bool,
) -> Done | PlanOut:
    """Delete a topic or group, unless the plan refuses it."""
    refuse_system(subject)
    if dry_run:
        return plan_of(danger)
    if danger.refusal:
        raise ProblemError(HTTPStatus.CONFLICT, danger.refusal)
    entry = pages.deleted(request, subject.name, act, before(), after)
    return Done(detail=str(pages.words.deleted) % {"name": subject.name}, entry=entry.pk)
