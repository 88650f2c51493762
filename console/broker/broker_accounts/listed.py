"""Rows of the account list, and explanations of access checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from console.broker.broker_accounts.changing import GROUP, TOPIC, is_own, named, values_of
from console.gateway.access import gateway
from console.gateway.errors import GatewayError

if TYPE_CHECKING:
    from console.broker.broker_accounts.changing import BrokersAccess
    from console.broker.configs.plan import Values
    from console.gateway.accounts import AccessDecision, AccessQuestion, BrokerAccount


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that differs between brokers, with each broker's value."""

    key: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """An account on the first broker, with its differences on other brokers."""

    account: BrokerAccount
    places: tuple[str, ...]
    missing: tuple[str, ...]
    differences: tuple[Difference, ...]
    is_own: bool

    @property
    def may_all(self) -> bool:
        """Return whether the account is an administrator without further limits."""
        each = self.account
        return each.is_admin and not each.topic_perms and not each.group_perms

    @property
    def topic_lines(self) -> list[tuple[str, str]]:
        return list(named(values_of(self.account), TOPIC).items())

    @property
    def group_lines(self) -> list[tuple[str, str]]:
        return list(named(values_of(self.account), GROUP).items())


@dataclass(frozen=True, slots=True)
class AccessAnswer:
    """A broker's answer to an access check; `is_allowed` is None if the broker doesn't say."""

    place: str
    is_allowed: bool | None
    answer: str
    rule: str = ""
    note: str = ""


def rows_of(all_of: BrokersAccess) -> list[Row]:
    rows = []
    for key in all_of.access_keys:
        held = all_of.holders(key)
        first = next(iter(held.values()))
        rows.append(
            Row(
                account=first,
                places=tuple(held),
                missing=tuple(place for place in all_of.on if place not in held),
                differences=tuple(differences({p: values_of(e) for p, e in held.items()})),
                is_own=is_own(key),
            )
        )
    return rows


def differences(values: dict[str, Values]) -> list[Difference]:
    """Return the values that differ between brokers."""
    keys = dict.fromkeys(key for each in values.values() for key in each)
    found = []
    for key in keys:
        texts = {place: each.get(key) for place, each in values.items()}
        if len(set(texts.values())) > 1:
            shown = tuple((place, "-" if e is None else str(e)) for place, e in texts.items())
            found.append(Difference(key, shown))
    return found


def white_rows(all_of: BrokersAccess) -> list[tuple[list[str], tuple[str, ...]]]:
    """Return groups of brokers with the same whitelisted addresses."""
    grouped: dict[tuple[str, ...], list[str]] = {}
    for place, (_node, access) in all_of.on.items():
        grouped.setdefault(access.white_addresses, []).append(place)
    return [(places, addresses) for addresses, places in grouped.items()]


def other_white(all_of: BrokersAccess) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return whitelisted addresses of files that requests can't change: broker, file, addresses."""
    return [
        (place, file, addresses)
        for place, (_node, access) in all_of.on.items()
        for file, addresses in access.other_white_addresses.items()
    ]


def access_answers(all_of: BrokersAccess, question: AccessQuestion) -> list[AccessAnswer]:
    """Return each broker's answer to an access check."""
    rows = []
    for place, (node, access) in all_of.on.items():
        if not access.is_described:
            text = _("This is an Apache RocketMQ broker, which doesn't report this.")
            rows.append(AccessAnswer(place, None, text))
            continue
        try:
            decision = gateway().accounts.explain(node, question)
        except GatewayError as error:
            rows.append(AccessAnswer(place, None, f"{error.what} {error.advice}".strip()))
            continue
        note = ""
        if decision.needs_fresh_signature:
            note = _("Only with a fresh signature for each request (requireFreshSignature).")
        is_allowed: bool | None = decision.is_allowed
        if is_allowed and decision.validators:
            # Custom validators must allow it too, and the console can't ask them.
            is_allowed = None
            note = _(
                "plain_acl.yml allows it, but %(names)s also has to allow it and can't be queried."
            ) % {"names": ", ".join(decision.validators)}
        rows.append(AccessAnswer(place, is_allowed, sentence(decision), decision.rule, note))
    everybody = _("Access control is off, so everyone can do everything.")
    rows.extend(AccessAnswer(place, True, everybody, "aclEnable=false") for place in all_of.off)
    rows.extend(AccessAnswer(place, None, error.what) for place, error in all_of.silent.items())
    return rows


def sentence(decision: AccessDecision) -> str:
    """Return the reason for a broker's decision."""
    return {
        "globalWhite": _("Requests from this address don't need an account."),
        "noAccount": _("The request doesn't name an account, and its address needs one."),
        "unknownAccount": _("The broker has no account with this key."),
        "accountWhite": _("From this address, the account needs no signature and no permission."),
        "administrator": _("The account is an administrator."),
        "noAdministrator": _("Only administrator accounts can do this."),
        "trace": _("All accounts can send traces."),
        "permission": _("The account's permission for this name applies."),
        "brokersOwn": _("This is an internal broker topic, which default permissions don't open."),
        "default": _("The account has no permission for this name, so its default applies."),
    }.get(decision.reason, decision.reason)
