"""Explains why a request would pass or be refused, with the steps of the Authorizer.

A decision quotes the rule as written in plain_acl.yml, so that the line is easy to find.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from broker_core.access.account import BROKERS_OWN_TOPICS, WORDS, Permission, text_of
from broker_core.access.address_rule import parts_of
from broker_core.access.rules import TRACE_NEED, Need
from broker_core.message.names import RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.access.account import Account
    from broker_core.access.acl_files import AccessState

ACTIONS = {"PUB": Permission.PUB, "SUB": Permission.SUB}
ADMIN = "ADMIN"


class Reason(StrEnum):
    """The reason for a decision."""

    GLOBAL_WHITE = "globalWhite"
    NO_ACCOUNT = "noAccount"
    UNKNOWN_ACCOUNT = "unknownAccount"
    ACCOUNT_WHITE = "accountWhite"
    ADMINISTRATOR = "administrator"
    NO_ADMINISTRATOR = "noAdministrator"
    TRACE = "trace"
    PERMISSION = "permission"
    BROKERS_OWN = "brokersOwn"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request would pass, and why."""

    allowed: bool
    reason: Reason
    rule: str = ""
    """The deciding line, `key: value`; empty if no line decides."""
    fresh: bool = False
    """Whether the request must have a fresh signature, which is valid once."""


def parse_need(action: str, topic: str | None, group: str | None) -> Need | None:
    """Return the permission that the question is about; None for administration.

    Raises:
        ValueError: the question is invalid; the text says why.
    """
    if action == ADMIN:
        return None
    if action not in ACTIONS:
        raise ValueError(f"unknown action {action[:32]!r}; use PUB, SUB or ADMIN")
    if group:
        if action != "SUB":
            raise ValueError("SUB is the only permission of a group")
        return Need(RETRY_GROUP_TOPIC_PREFIX + group, Permission.SUB)
    if not topic:
        raise ValueError("the request names neither a topic nor a group")
    return Need(topic, ACTIONS[action])


def decide(
    state: AccessState,
    access_key: str | None,
    host: str,
    need: Need | None,
    must_be_fresh: Callable[[Account], bool],
) -> Decision:
    """Return the decision for a correctly signed request; `need` is None for administration."""
    address = parts_of(host)
    for rule, text in zip(state.global_white, state.global_white_texts, strict=True):
        if rule(address):
            return Decision(True, Reason.GLOBAL_WHITE, f"globalWhiteRemoteAddresses: {text}")
    if not access_key:
        return Decision(False, Reason.NO_ACCOUNT)
    account = state.accounts.get(access_key)
    if account is None:
        return Decision(False, Reason.UNKNOWN_ACCOUNT)
    is_fresh = must_be_fresh(account)
    if account.white_address(address) and not is_fresh:
        rule_text = f"whiteRemoteAddress: {_white_text(state, access_key)}"
        return Decision(True, Reason.ACCOUNT_WHITE, rule_text)
    allowed, reason, line = _by_permission(account, need)
    return Decision(allowed, reason, line, is_fresh)


def _by_permission(account: Account, need: Need | None) -> tuple[bool, Reason, str]:
    if need is None:
        reason = Reason.ADMINISTRATOR if account.is_admin else Reason.NO_ADMINISTRATOR
        return account.is_admin, reason, f"admin: {str(account.is_admin).lower()}"
    if need == TRACE_NEED:
        return True, Reason.TRACE, ""
    allowed = account.may(need.action, need.resource)
    if account.is_admin and not account.permissions:
        return allowed, Reason.ADMINISTRATOR, "admin: true"
    is_group = need.resource.startswith(RETRY_GROUP_TOPIC_PREFIX)
    word = _word(account.permission(need.resource))
    if need.resource in account.permissions:
        name = need.resource.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        key = "groupPerms" if is_group else "topicPerms"
        return allowed, Reason.PERMISSION, f"{key}: {name}={word}"
    if need.resource in BROKERS_OWN_TOPICS and not account.is_admin:
        return allowed, Reason.BROKERS_OWN, ""
    key = "defaultGroupPerm" if is_group else "defaultTopicPerm"
    return allowed, Reason.DEFAULT, f"{key}: {word}"


def _word(bits: int) -> str:
    return next(word for word, each in WORDS.items() if each == bits)


def _white_text(state: AccessState, access_key: str) -> str:
    """Return an account's white addresses as written in its file."""
    return next(
        text_of(entry.get("whiteRemoteAddress")) or ""
        for entry in state.entries
        if text_of(entry.get("accessKey")) == access_key
    )
