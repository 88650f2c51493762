"""Broker accounts as listed in plain_acl.yml, without their secrets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PERMISSIONS = ("DENY", "PUB", "SUB", "PUB|SUB")
GROUP_PERMISSIONS = ("DENY", "SUB")


@dataclass(frozen=True, slots=True)
class BrokerAccount:
    """An account on one broker. Permissions are keyed by topic or group name, as in the file."""

    access_key: str
    is_admin: bool = False
    default_topic_perm: str = "DENY"
    default_group_perm: str = "DENY"
    topic_perms: Mapping[str, str] = field(default_factory=dict)
    group_perms: Mapping[str, str] = field(default_factory=dict)
    white_address: str = ""
    is_broker: bool = False
    """Whether a broker may register with this account. Only editable in the file."""
    requires_fresh_signature: bool = False
    """Only editable in the file."""
    file: str = ""


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """Access control of one broker. If `is_on` is false, everyone may do everything.

    If `is_described` is false, the broker runs Apache RocketMQ, which requires the secret with
    every
    account change, doesn't report its files and can't explain decisions.
    """

    is_on: bool
    accounts: tuple[BrokerAccount, ...] = ()
    white_addresses: tuple[str, ...] = ()
    """The file's addresses that requests can change."""
    other_white_addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Addresses that can only be edited by hand, by file."""
    is_described: bool = False

    def account(self, access_key: str) -> BrokerAccount | None:
        return next((each for each in self.accounts if each.access_key == access_key), None)


@dataclass(frozen=True, slots=True)
class AccessQuestion:
    """May this account, from this address, perform this action on a topic or group?"""

    address: str
    action: str
    access_key: str = ""
    topic: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """The broker's answer: allowed or not, the reason, and the matching line of the file.

    `validators` lists extensions that must also agree; they weren't consulted.
    """

    is_allowed: bool
    reason: str
    rule: str
    needs_fresh_signature: bool
    validators: tuple[str, ...] = ()
