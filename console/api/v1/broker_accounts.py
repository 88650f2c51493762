"""Accounts of brokers: who they are, what they may do, and changing that.

No answer holds a secret: a program that makes one gives it in its request.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema

from console.api.operations import Need, operation
from console.api.problems import ProblemError, of_form
from console.api.requestbody import filled, given, schema_of
from console.api.schemas import Done, DryRun, PlanOut, Text, plan_of
from console.audit.models import Entry
from console.broker_accounts import changing, listed
from console.broker_accounts.forms import AccountForm, QuestionForm, WhiteForm
from console.broker_accounts.views import (
    danger_of_deletion,
    deletion,
    holders_or_404,
    said,
    undoable,
)
from console.gateway.accounts import BrokerAccount

if TYPE_CHECKING:
    from console.broker_accounts.changing import Found
    from console.configs.plan import Plan

SECRET_FIELD = "secret_key"
SECRET_CHARACTERS_MIN, SECRET_CHARACTERS_MAX = 7, 256
SECRET = {
    "type": "string",
    "minLength": SECRET_CHARACTERS_MIN,
    "maxLength": SECRET_CHARACTERS_MAX,
    "description": "The account's secret; no answer and no audit holds it.",
}
ACCOUNT = schema_of(AccountForm)
BODY = {
    **ACCOUNT,
    "properties": {
        **{name: each for name, each in ACCOUNT["properties"].items() if name != "access_key"},
        SECRET_FIELD: SECRET,
    },
}
FIELDS = tuple(BODY["properties"])
SECRET_BODY = {
    "type": "object",
    "additionalProperties": False,
    "required": [SECRET_FIELD],
    "properties": {SECRET_FIELD: SECRET},
}


class AccountOut(Schema):
    """An account of one broker, without its secret."""

    access_key: str
    is_admin: bool
    default_topic_perm: str
    default_group_perm: str
    topic_perms: dict[str, str]
    group_perms: dict[str, str]
    white_address: str
    is_broker: bool
    requires_fresh_signature: bool


class BrokerAccessOut(Schema):
    """A broker's access control; `problem` says why nothing is known of it."""

    broker: str
    is_on: bool | None
    problem: str = ""
    accounts: list[AccountOut] = []
    white_addresses: list[str] = []


class AccessToldOut(Schema):
    """A broker's answer; `is_allowed` None: it does not say."""

    broker: str
    is_allowed: bool | None
    reason: str
    rule: str


@operation(
    "GET",
    "/broker-accounts",
    area="people",
    need=Need.ADMINISTER,
    pages=("broker_accounts:list",),
    response=list[BrokerAccessOut],
)
def broker_accounts(request: HttpRequest) -> list[dict[str, Any]]:
    """List the accounts of each broker."""
    all_of = changing.found()
    return [
        *(
            {
                "broker": place,
                "is_on": True,
                "accounts": [AccountOut.from_orm(each) for each in access.accounts],
                "white_addresses": list(access.white_addresses),
            }
            for place, (_node, access) in all_of.on.items()
        ),
        *({"broker": place, "is_on": False} for place in all_of.off),
        *(
            {"broker": place, "is_on": None, "problem": error.what}
            for place, error in all_of.silent.items()
        ),
    ]


@operation(
    "GET",
    "/broker-access",
    area="people",
    need=Need.ADMINISTER,
    pages=("broker_accounts:may",),
    response=list[AccessToldOut],
)
def broker_access(
    request: HttpRequest, address: Text, action: Text, access_key: Text = "", name: Text = ""
) -> list[dict[str, Any]]:
    """Say whether an account may do something; `action`: send, read, consume, administer."""
    data = {"address": address, "action": action, "access_key": access_key, "name": name}
    form = QuestionForm(data)
    if not form.is_valid():
        raise of_form(form)
    return [
        {
            "broker": each.place,
            "is_allowed": each.is_allowed,
            "reason": f"{each.said} {each.note}".strip(),
            "rule": each.rule,
        }
        for each in listed.told(changing.found(), form.question())
    ]


@operation(
    "PUT",
    "/broker-accounts/{path:access_key}",
    area="people",
    need=Need.ADMINISTER,
    pages=("broker_accounts:create", "broker_accounts:edit"),
    body=BODY,
    response=Done | PlanOut,
)
def broker_account_put(
    request: HttpRequest, access_key: Text, dry_run: DryRun = False
) -> Done | PlanOut:
    """Make an account on every broker, or make it what the body says wherever it is."""
    all_of = changing.found()
    asked = given(request, FIELDS)
    secret = secret_in(asked)
    held = all_of.holders(access_key)
    rest = {key: each for key, each in asked.items() if key != SECRET_FIELD}
    begins = next(iter(held.values()), None)
    if begins is None:
        form = filled(request, AccountForm, {**rest, "access_key": access_key})
    else:
        form = filled(request, lambda data: AccountForm(data, account=begins), rest)
    wanted: BrokerAccount = form.wanted()
    if not all_of.on:
        detail = _("Access control is on at no broker that answers.")
        raise ProblemError(HTTPStatus.CONFLICT, detail)
    plan = changing.plan_of_account(all_of, wanted, is_new=begins is None)
    return settled(request, all_of, plan, secret, dry_run=dry_run)


@operation(
    "POST",
    "/broker-account-secrets/{path:access_key}",
    area="people",
    need=Need.ADMINISTER,
    pages=("broker_accounts:renew",),
    body=SECRET_BODY,
    response=Done | PlanOut,
)
def broker_account_secret(
    request: HttpRequest, access_key: Text, dry_run: DryRun = False
) -> Done | PlanOut:
    """Give an account another secret on every broker."""
    all_of = changing.found()
    secret = secret_in(given(request, (SECRET_FIELD,)))
    holders_or_404(all_of, access_key)
    plan = changing.plan_of_secret(all_of, access_key)
    return settled(request, all_of, plan, secret, dry_run=dry_run)


@operation(
    "DELETE",
    "/broker-accounts/{path:access_key}",
    area="people",
    need=Need.ADMINISTER,
    pages=("broker_accounts:delete",),
    response=Done | PlanOut,
)
def broker_account_delete(
    request: HttpRequest, access_key: Text, dry_run: DryRun = False
) -> Done | PlanOut:
    """Delete an account wherever it is."""
    all_of = changing.found()
    plan = deletion(all_of, access_key)
    if dry_run:
        return plan_of(danger_of_deletion(all_of, plan))
    return settled(request, all_of, plan, None, dry_run=False)


@operation(
    "PUT",
    "/broker-white-addresses",
    area="people",
    need=Need.ADMINISTER,
    pages=("broker_accounts:white",),
    form=WhiteForm,
    response=Done | PlanOut,
)
def broker_white_addresses(request: HttpRequest, dry_run: DryRun = False) -> Done | PlanOut:
    """Replace the addresses that need no account, on every broker."""
    form = filled(request, WhiteForm)
    all_of = changing.found()
    plan = changing.plan_of_white(all_of, form.cleaned_data["addresses"])
    return settled(request, all_of, plan, None, dry_run=dry_run)


def secret_in(asked: dict[str, Any]) -> str | None:
    """Return the secret of a body, None where it has none.

    Raises:
        ProblemError: it cannot be one.
    """
    secret = asked.get(SECRET_FIELD)
    if secret is None:
        return None
    is_text = isinstance(secret, str) and secret.isascii() and secret.isprintable()
    if not is_text or not SECRET_CHARACTERS_MIN <= len(secret) <= SECRET_CHARACTERS_MAX:
        detail = _("A secret has %(low)d to %(high)d characters of ASCII.")
        values = {"low": SECRET_CHARACTERS_MIN, "high": SECRET_CHARACTERS_MAX}
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail % values)
    return str(secret)


def settled(
    request: HttpRequest, all_of: Found, plan: Plan, secret: str | None, *, dry_run: bool
) -> Done | PlanOut:
    """Show a change, or do it."""
    changes = {"seen": plan.seen, "now": plan.now, "wanted": plan.wanted}
    refusal = changing.objection_to(plan)
    if dry_run:
        title = f"{changing.action_of(plan)} {plan.name}"
        return PlanOut(title=title, changes=changes, refusal=refusal)
    if plan.is_idle:
        return Done(detail=_("It is like this already; nothing was done."))
    if refusal:
        raise ProblemError(HTTPStatus.CONFLICT, refusal)
    if plan.is_overtaken:
        detail = _("Somebody changed it meanwhile; nothing was done.")
        raise ProblemError(HTTPStatus.CONFLICT, detail, more=changes)
    if changing.makes_secret(plan) and secret is None:
        detail = _("This takes a secret: give %(field)s.") % {"field": SECRET_FIELD}
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    outcome = changing.carried_out(request, all_of, plan, secret)
    if outcome.problem:
        more = {"done": list(outcome.done)}
        raise ProblemError(HTTPStatus.BAD_GATEWAY, outcome.problem, more=more)
    return Done(detail=said(plan), entry=outcome.entry.pk)


def account_restored(request: HttpRequest, done: Entry, *, dry_run: bool) -> Done | PlanOut:
    """Take back what an entry says was changed of an account or of white addresses."""
    Need.ADMINISTER.require(request)
    all_of = changing.found()
    plan = changing.undoing(undoable(done.pk), all_of)
    return settled(request, all_of, plan, None, dry_run=dry_run)
