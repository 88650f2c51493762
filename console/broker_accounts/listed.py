"""Rows of the list of accounts, and what a broker's answer to a question means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from console.broker_accounts.changing import GROUP, TOPIC, is_own, named, values_of
from console.gateway.access import gateway
from console.gateway.errors import GatewayError

if TYPE_CHECKING:
    from console.broker_accounts.changing import Found
    from console.configs.plan import Values
    from console.gateway.accounts import AccessDecision, AccessQuestion, BrokerAccount


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that brokers have differently: its name, and who has what."""

    key: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """An account, as the first broker has it, and where brokers differ."""

    account: BrokerAccount
    places: tuple[str, ...]
    missing: tuple[str, ...]
    differences: tuple[Difference, ...]
    is_own: bool

    @property
    def may_all(self) -> bool:
        """Whether it is an administrator's whom no permission bounds."""
        each = self.account
        return each.is_admin and not each.topic_perms and not each.group_perms

    @property
    def topic_lines(self) -> list[tuple[str, str]]:
        return list(named(values_of(self.account), TOPIC).items())

    @property
    def group_lines(self) -> list[tuple[str, str]]:
        return list(named(values_of(self.account), GROUP).items())


@dataclass(frozen=True, slots=True)
class Told:
    """One broker's answer to a question, in words; `is_allowed` None: it does not say."""

    place: str
    is_allowed: bool | None
    said: str
    rule: str = ""
    note: str = ""


def rows_of(all_of: Found) -> list[Row]:
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
    """Return what brokers have differently, value by value."""
    keys = dict.fromkeys(key for each in values.values() for key in each)
    found = []
    for key in keys:
        texts = {place: each.get(key) for place, each in values.items()}
        if len(set(texts.values())) > 1:
            shown = tuple((place, "-" if e is None else str(e)) for place, e in texts.items())
            found.append(Difference(key, shown))
    return found


def white_rows(all_of: Found) -> list[tuple[list[str], tuple[str, ...]]]:
    """Return brokers with the same white addresses together, and those."""
    grouped: dict[tuple[str, ...], list[str]] = {}
    for place, (_node, access) in all_of.on.items():
        grouped.setdefault(access.white_addresses, []).append(place)
    return [(places, addresses) for addresses, places in grouped.items()]


def other_white(all_of: Found) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the white addresses of files that no request changes: broker, file, addresses."""
    return [
        (place, file, addresses)
        for place, (_node, access) in all_of.on.items()
        for file, addresses in access.other_white_addresses.items()
    ]


def told(all_of: Found, question: AccessQuestion) -> list[Told]:
    """Ask each broker what it would answer."""
    rows = []
    for place, (node, access) in all_of.on.items():
        if not access.is_described:
            said = _("It is one of RocketMQ's own, which do not say.")
            rows.append(Told(place, None, said))
            continue
        try:
            decision = gateway().accounts.explain(node, question)
        except GatewayError as error:
            rows.append(Told(place, None, f"{error.what} {error.advice}".strip()))
            continue
        note = ""
        if decision.needs_fresh_signature:
            note = _("Only with a signature that passes once (requireFreshSignature).")
        is_allowed: bool | None = decision.is_allowed
        if is_allowed and decision.validators:
            # Each has to agree: one that refuses is enough, and only they know.
            is_allowed = None
            note = _("plain_acl.yml allows it; %(names)s has to agree, and cannot be asked.") % {
                "names": ", ".join(decision.validators)
            }
        rows.append(Told(place, is_allowed, sentence(decision), decision.rule, note))
    everybody = _("Access control is off: everybody may do everything.")
    rows.extend(Told(place, True, everybody, "aclEnable=false") for place in all_of.off)
    rows.extend(Told(place, None, error.what) for place, error in all_of.silent.items())
    return rows


def sentence(decision: AccessDecision) -> str:
    """Return why a broker decides so."""
    return {
        "globalWhite": _("Requests from this address need no account."),
        "noAccount": _("The request names no account, and its address needs one."),
        "unknownAccount": _("The broker has no account of this key."),
        "accountWhite": _("From this address the account needs no signature and no permission."),
        "administrator": _("The account is an administrator's."),
        "noAdministrator": _("Only an administrator's account may do this."),
        "trace": _("Every account may send traces."),
        "permission": _("The account's permission for this name decides."),
        "brokersOwn": _("The topic is the broker's own, which no default permission opens."),
        "default": _("The account has no permission for this name, so its default decides."),
    }.get(decision.reason, decision.reason)
