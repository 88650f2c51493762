"""Broker accounts: list, permissions and changes.

No response contains a secret. The program that creates an account sends the secret.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema

from console.api.operations import Need, operation
from console.api.plans import changes_of, overtaken, unchanged
from console.api.problems import ProblemError, of_form
from console.api.requestbody import json_object, schema_of, valid_form
from console.api.schemas import Done, DryRun, PlanOut, Text, plan_of
from console.broker.broker_accounts import changing, listed
from console.broker.broker_accounts.changing import (
    danger_of_deletion,
    deletion,
    done_message,
    holders_or_404,
    undoable,
)
from console.broker.broker_accounts.forms import AccountForm, QuestionForm, WhiteForm
from console.gateway.accounts import BrokerAccount
from console.people.audit.models import Entry

if TYPE_CHECKING:
    from console.broker.broker_accounts.changing import BrokersAccess
    from console.broker.configs.plan import Plan

SECRET_FIELD = "secret_key"
SECRET_CHARACTERS_MIN, SECRET_CHARACTERS_MAX = 7, 256
SECRET = {
    "type": "string",
    "minLength": SECRET_CHARACTERS_MIN,
    "maxLength": SECRET_CHARACTERS_MAX,
    "description": "The account's secret; never returned or written to the audit log.",
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
    """An account on one broker, without its secret."""

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
    """A broker's access control; `problem` says why it is unknown."""

    broker: str
    is_on: bool | None
    problem: str = ""
    accounts: list[AccountOut] = []
    white_addresses: list[str] = []


class AccessAnswerOut(Schema):
    """A broker's answer to an access check; `is_allowed` is null if the broker doesn't say."""

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
    all_of = changing.ask_brokers()
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
    response=list[AccessAnswerOut],
)
def broker_access(
    request: HttpRequest, address: Text, action: Text, access_key: Text = "", name: Text = ""
) -> list[dict[str, Any]]:
    """Check whether an account may do something; `action`: send, read, consume, administer."""
    data = {"address": address, "action": action, "access_key": access_key, "name": name}
    form = QuestionForm(data)
    if not form.is_valid():
        raise of_form(form)
    return [
        {
            "broker": each.place,
            "is_allowed": each.is_allowed,
            "reason": f"{each.answer} {each.note}".strip(),
            "rule": each.rule,
        }
        for each in listed.access_answers(changing.ask_brokers(), form.question())
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
    """Create an account on every broker, or update it on each broker that has it."""
    all_of = changing.ask_brokers()
    asked = json_object(request, FIELDS)
    secret = secret_in(asked)
    held = all_of.holders(access_key)
    rest = {key: each for key, each in asked.items() if key != SECRET_FIELD}
    begins = next(iter(held.values()), None)
    if begins is None:
        form = valid_form(request, AccountForm, {**rest, "access_key": access_key})
    else:
        form = valid_form(request, lambda data: AccountForm(data, account=begins), rest)
    wanted: BrokerAccount = form.wanted()
    if not all_of.on:
        detail = _("Access control isn't turned on at any broker that responded.")
        raise ProblemError(HTTPStatus.CONFLICT, detail)
    plan = changing.plan_of_account(all_of, wanted, is_new=begins is None)
    return preview_or_apply(request, all_of, plan, secret, dry_run=dry_run)


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
    """Replace an account's secret on every broker."""
    all_of = changing.ask_brokers()
    secret = secret_in(json_object(request, (SECRET_FIELD,)))
    holders_or_404(all_of, access_key)
    plan = changing.plan_of_secret(all_of, access_key)
    return preview_or_apply(request, all_of, plan, secret, dry_run=dry_run)


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
    """Delete an account from every broker that has it."""
    all_of = changing.ask_brokers()
    plan = deletion(all_of, access_key)
    if dry_run:
        return plan_of(danger_of_deletion(all_of, plan))
    return preview_or_apply(request, all_of, plan, None, dry_run=False)


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
    """Replace the list of addresses that need no account, on every broker."""
    form = valid_form(request, WhiteForm)
    all_of = changing.ask_brokers()
    plan = changing.plan_of_white(all_of, form.cleaned_data["addresses"])
    return preview_or_apply(request, all_of, plan, None, dry_run=dry_run)


def secret_in(asked: dict[str, Any]) -> str | None:
    """Return the secret in a body, or None if the body has no secret.

    Raises:
        ProblemError: the secret is invalid.
    """
    secret = asked.get(SECRET_FIELD)
    if secret is None:
        return None
    is_text = isinstance(secret, str) and secret.isascii() and secret.isprintable()
    if not is_text or not SECRET_CHARACTERS_MIN <= len(secret) <= SECRET_CHARACTERS_MAX:
        detail = _("A secret must have %(low)d to %(high)d ASCII characters.")
        values = {"low": SECRET_CHARACTERS_MIN, "high": SECRET_CHARACTERS_MAX}
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail % values)
    return str(secret)


def preview_or_apply(
    request: HttpRequest, all_of: BrokersAccess, plan: Plan, secret: str | None, *, dry_run: bool
) -> Done | PlanOut:
    """Preview a change, or apply it."""
    changes = changes_of(plan)
    refusal = changing.objection_to(plan)
    if dry_run:
        title = f"{changing.action_of(plan)} {plan.name}"
        return PlanOut(title=title, changes=changes, refusal=refusal)
    if plan.is_idle:
        return unchanged()
    if refusal:
        raise ProblemError(HTTPStatus.CONFLICT, refusal)
    if plan.is_overtaken:
        raise overtaken(changes)
    if changing.has_new_secret(plan) and secret is None:
        detail = _("A secret is required. Set %(field)s.") % {"field": SECRET_FIELD}
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    outcome = changing.apply_plan(request, all_of, plan, secret)
    if outcome.problem:
        more = {"done": list(outcome.done)}
        raise ProblemError(HTTPStatus.BAD_GATEWAY, outcome.problem, more=more)
    return Done(detail=done_message(plan), entry=outcome.entry.pk)


def undo_account_change(request: HttpRequest, done: Entry, *, dry_run: bool) -> Done | PlanOut:
    """Undo a change of an account or of the whitelisted addresses."""
    Need.ADMINISTER.require(request)
    all_of = changing.ask_brokers()
    plan = changing.undoing(undoable(done.pk), all_of)
    return preview_or_apply(request, all_of, plan, None, dry_run=dry_run)
