"""Changes of broker accounts as plans per broker, including generated secrets.

A secret is generated here, sent to the brokers, shown to the user once, and stored nowhere.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _

from console.broker.configs.plan import Plan
from console.gateway.access import gateway
from console.gateway.accounts import BrokerAccess, BrokerAccount
from console.gateway.errors import GatewayError
from console.lib.missing import MissingError
from console.people.audit.models import Entry
from console.people.audit.record import change
from console.ui.danger import Danger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.http import HttpRequest

    from console.broker.configs.plan import State, Values
    from console.gateway.answers import BrokerNode

ACCOUNT, WHITE = "broker-account", "broker-white"
SECRET_BYTES = 24
NEW_SECRET = "secretKey"
TOPIC, GROUP = "topicPerms ", "groupPerms "
WHITE_KEY = "globalWhiteRemoteAddresses"
WHITE_NAME = "plain_acl.yml"
UNDONE = (f"{ACCOUNT}.create", f"{ACCOUNT}.update", f"{WHITE}.update")
"""Changes that can be undone, because they don't replace a secret."""
BETWEEN = " · "
"""The separator of addresses, which may contain commas."""


@dataclass(frozen=True, slots=True)
class BrokersAccess:
    """The access control of all brokers, by display name."""

    on: Mapping[str, tuple[BrokerNode, BrokerAccess]]
    off: tuple[str, ...]
    silent: Mapping[str, GatewayError]

    def holders(self, access_key: str) -> dict[str, BrokerAccount]:
        """Return an account's values on each broker that has it."""
        found = {place: access.account(access_key) for place, (_node, access) in self.on.items()}
        return {place: each for place, each in found.items() if each is not None}

    def is_described(self, place: str) -> bool:
        return self.on[place][1].is_described

    @property
    def access_keys(self) -> list[str]:
        return sorted(
            {each.access_key for _node, access in self.on.values() for each in access.accounts}
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a change; `secret` is set if generated, even if a later broker failed."""

    entry: Entry
    secret: str | None
    done: tuple[str, ...]
    problem: str


def place_of(node: BrokerNode) -> str:
    return node.broker_name if node.is_master else f"{node.broker_name}:{node.broker_id}"


def ask_brokers() -> BrokersAccess:
    """Ask all brokers."""
    answers = sorted(gateway().accounts.all().items(), key=lambda pair: place_of(pair[0]))
    on, off, silent = {}, [], {}
    for node, answer in answers:
        place = place_of(node)
        if isinstance(answer, GatewayError):
            silent[place] = answer
        elif answer.is_on:
            on[place] = (node, answer)
        else:
            off.append(place)
    return BrokersAccess(on, tuple(off), silent)


def values_of(account: BrokerAccount) -> Values:
    """Return an account as a plan's values, with the keys of its file."""
    values: Values = {
        "admin": account.is_admin,
        "defaultTopicPerm": account.default_topic_perm,
        "defaultGroupPerm": account.default_group_perm,
    }
    if account.white_address:
        values["whiteRemoteAddress"] = account.white_address
    values |= {f"{TOPIC}{name}": word for name, word in sorted(account.topic_perms.items())}
    return values | {f"{GROUP}{name}": word for name, word in sorted(account.group_perms.items())}


def account_of(access_key: str, values: Mapping[str, Any]) -> BrokerAccount:
    """Return the account that a plan's values describe."""
    return BrokerAccount(
        access_key=access_key,
        is_admin=bool(values["admin"]),
        default_topic_perm=str(values["defaultTopicPerm"]),
        default_group_perm=str(values["defaultGroupPerm"]),
        topic_perms=named(values, TOPIC),
        group_perms=named(values, GROUP),
        white_address=str(values.get("whiteRemoteAddress", "")),
    )


def named(values: Mapping[str, Any], prefix: str) -> dict[str, str]:
    return {
        key.removeprefix(prefix): str(word)
        for key, word in values.items()
        if key.startswith(prefix)
    }


def state_of(all_of: BrokersAccess, access_key: str, places: Any) -> State:
    held = all_of.holders(access_key)
    return {place: values_of(held[place]) if place in held else None for place in places}


def plan_of_account(
    all_of: BrokersAccess, wanted: BrokerAccount, *, is_new: bool, seen: Any = None
) -> Plan:
    """Return the plan to create an account on every broker, or to change it where it exists."""
    places = list(all_of.on) if is_new else list(all_of.holders(wanted.access_key))
    now = state_of(all_of, wanted.access_key, places)
    then: State = dict.fromkeys(places, values_of(wanted))
    plan = Plan(wanted.access_key, seen or now, now, then, kind=ACCOUNT)
    return with_secrets(all_of, plan)


def plan_of_white(all_of: BrokersAccess, addresses: list[str], seen: Any = None) -> Plan:
    now = white_state(all_of)
    then: State = {place: {WHITE_KEY: BETWEEN.join(addresses)} for place in all_of.on}
    return Plan(WHITE_NAME, seen or now, now, then, kind=WHITE)


def white_state(all_of: BrokersAccess) -> State:
    return {
        place: {WHITE_KEY: BETWEEN.join(access.white_addresses)}
        for place, (_node, access) in all_of.on.items()
    }


def with_secrets(all_of: BrokersAccess, plan: Plan) -> Plan:
    """Return a plan with a new secret if the change requires one.

    A new account requires a secret. RocketMQ's own brokers can't change an account without setting
    a secret, in which case all brokers of the account get the same new secret.
    """
    if plan.is_idle:
        return plan
    changed = [place for place, values in plan.wanted.items() if values != plan.now.get(place)]
    is_made = any(
        plan.wanted[place] is not None
        and (plan.now.get(place) is None or not all_of.is_described(place))
        for place in changed
    )
    if not is_made:
        return plan
    # People read this text in the plan and in the audit log.
    text = _("new secret, shown once")
    then = {
        place: None if values is None else {**values, NEW_SECRET: text}
        for place, values in plan.wanted.items()
    }
    return replace(plan, wanted=then)


def without_secrets(state: Any) -> State:
    """Return the state of an entry or plan without secrets, as brokers report it."""
    return {
        place: None
        if values is None
        else {key: each for key, each in values.items() if key != NEW_SECRET}
        for place, values in state.items()
    }


def apply_plan(
    request: HttpRequest, all_of: BrokersAccess, plan: Plan, secret: str | None = None
) -> Outcome:
    """Apply a plan broker by broker under one audit log entry; stop at the first failure."""
    used = (secret or new_secret()) if has_new_secret(plan) else None
    done: list[str] = []
    problem = ""
    with change(request, action_of(plan), plan.name, before=plan.now, after=plan.wanted) as entry:
        if plan.undoes is not None:
            entry.remark = _("Undoes entry %(entry)d.") % {"entry": plan.undoes}
        for place, values in plan.wanted.items():
            if values == plan.now.get(place):
                continue
            try:
                apply_on_broker(all_of, plan.name, place, values, used)
            except GatewayError as error:
                problem = f"{place}: {error.what} {error.advice}".strip()
                entry.outcome, entry.remark = Entry.Outcome.FAILED, problem
                break
            done.append(place)
    return Outcome(entry, used if done else None, tuple(done), problem)


def has_new_secret(plan: Plan) -> bool:
    return any(values and NEW_SECRET in values for values in plan.wanted.values())


def action_of(plan: Plan) -> str:
    """Return the audit log's action for a plan."""
    if plan.kind == WHITE:
        return f"{WHITE}.update"
    then = without_secrets(plan.wanted)
    held = {place: values for place, values in plan.now.items() if values is not None}
    if held and has_new_secret(plan) and all(then[place] == held[place] for place in held):
        return f"{ACCOUNT}.secret"
    return f"{ACCOUNT}.{plan.verb}"


def apply_on_broker(
    all_of: BrokersAccess, name: str, place: str, values: Values | None, secret: str | None
) -> None:
    """Apply a plan on one broker.

    Raises:
        GatewayError: the broker rejected the change or didn't respond.
    """
    if place not in all_of.on:
        raise GatewayError(_("Not responding, or its access control is off."))
    node, _access = all_of.on[place]
    accounts = gateway().accounts
    if values is None:
        accounts.delete(node, name)
    elif WHITE_KEY in values:
        texts = str(values[WHITE_KEY]).split(BETWEEN)
        accounts.set_white_addresses(node, [each for each in texts if each])
    else:
        given = secret if NEW_SECRET in values else None
        accounts.save(node, account_of(name, values), given)


def new_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def plan_of_secret(all_of: BrokersAccess, access_key: str) -> Plan:
    """Return the plan to set a new secret on every broker, which adds the account where it is
    missing.
    """
    held = all_of.holders(access_key)
    first = next(iter(held.values()))
    text = _("new secret, shown once")
    now = state_of(all_of, access_key, all_of.on)
    then: State = {
        place: {**values_of(held.get(place, first)), NEW_SECRET: text} for place in all_of.on
    }
    return Plan(access_key, now, now, then, kind=ACCOUNT)


def current(data: Mapping[str, Any], all_of: BrokersAccess, kind: str) -> Plan:
    """Return a plan that was shown, updated with the current state."""
    name, wanted = str(data["name"]), data["wanted"]
    if kind == WHITE:
        now = {place: each for place, each in white_state(all_of).items() if place in wanted}
    else:
        now = state_of(all_of, name, wanted)
    return Plan(name, data.get("seen") or now, now, wanted, data.get("undoes"), kind=kind)


def undoing(entry: Entry, all_of: BrokersAccess) -> Plan:
    """Return the plan to undo a change, from the current state."""
    before, after = without_secrets(entry.before or {}), without_secrets(entry.after or {})
    kind = kind_of(entry)
    if kind == WHITE:
        now = {place: each for place, each in white_state(all_of).items() if place in after}
    else:
        now = state_of(all_of, entry.subject, [place for place in after if place in all_of.on])
    gone = [place for place in after if place not in now]
    if gone:
        text = _("%(brokers)s isn't reporting its accounts. Try undoing again when it responds.")
        raise MissingError(text % {"brokers": ", ".join(gone)})
    wanted = {place: before.get(place) for place in after}
    plan = Plan(entry.subject, after, now, wanted, entry.pk, kind=kind)
    return plan if kind == WHITE else with_secrets(all_of, plan)


def kind_of(entry: Entry) -> str:
    """Return the subject kind of an entry's plan."""
    return entry.action.partition(".")[0]


def is_own(access_key: str) -> bool:
    """Return whether the console itself uses this account."""
    return access_key == settings.TREBUCHET_BROKER_ACCESS_KEY


def objection_to(plan: Plan) -> str:
    """Return why a plan would lock the console out, or ""."""
    if not is_own(plan.name):
        return ""
    for values in plan.wanted.values():
        if values is None or NEW_SECRET in values or not values.get("admin"):
            return _(
                "The console itself uses this account and would lose access. Configure another "
                "account for the console first (TREBUCHET_BROKER_ACCESS_KEY)."
            )
    return ""


LIST = "broker_accounts:list"


def deletion(all_of: BrokersAccess, access_key: str) -> Plan:
    now = state_of(all_of, access_key, holders_or_404(all_of, access_key))
    return Plan(access_key, now, now, dict.fromkeys(now), kind=ACCOUNT)


def danger_of_deletion(all_of: BrokersAccess, plan: Plan) -> Danger:
    return Danger(
        title=_("Delete account %(key)s?") % {"key": plan.name},
        text=_("%(brokers)s will reject clients that use this account.")
        % {"brokers": ", ".join(plan.now)},
        undo=_("This can't be undone. A recreated account has a different secret."),
        action=_("Delete account"),
        keep=_("Cancel"),
        address=reverse("broker_accounts:delete", args=[plan.name]),
        back=reverse(LIST),
        name=plan.name,
        refusal=objection_to(plan),
    )


def undoable(entry: int) -> Entry:
    found: Entry = get_object_or_404(Entry, pk=entry, action__in=UNDONE, outcome=Entry.Outcome.DONE)
    return found


def done_message(plan: Plan) -> str:
    if plan.kind == WHITE:
        return _("The addresses without an account were changed.")
    if plan.verb == "delete":
        return _("Account %(key)s deleted.") % {"key": plan.name}
    return _("Account %(key)s changed.") % {"key": plan.name}


def holders_or_404(all_of: BrokersAccess, access_key: str) -> dict[str, BrokerAccount]:
    held = all_of.holders(access_key)
    if not held:
        raise MissingError(
            _("None of the brokers that responded has the account %(key)s.") % {"key": access_key}
        )
    return held
