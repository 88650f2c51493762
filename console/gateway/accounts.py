"""Accounts of brokers as their files have them (plain_acl.yml): no secret is ever among them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PERMISSIONS = ("DENY", "PUB", "SUB", "PUB|SUB")
GROUP_PERMISSIONS = ("DENY", "SUB")


@dataclass(frozen=True, slots=True)
class BrokerAccount:
    """An account of one broker. Permissions by name of topic or group, as the file writes them."""

    access_key: str
    is_admin: bool = False
    default_topic_perm: str = "DENY"
    default_group_perm: str = "DENY"
    topic_perms: Mapping[str, str] = field(default_factory=dict)
    group_perms: Mapping[str, str] = field(default_factory=dict)
    white_address: str = ""
    is_broker: bool = False
    """Whether a broker may register with it; a line of the file that no request changes."""
    requires_fresh_signature: bool = False
    """The same."""
    file: str = ""


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """What one broker says of its access control. `is_on` false: everybody may do everything.

    `is_described` false: it is one of RocketMQ's own, which wants the secret at each change of an
    account, says nothing of files, and explains nothing.
    """

    is_on: bool
    accounts: tuple[BrokerAccount, ...] = ()
    white_addresses: tuple[str, ...] = ()
    """Those of the file that requests change."""
    other_white_addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By file, those that only people change."""
    is_described: bool = False

    def account(self, access_key: str) -> BrokerAccount | None:
        return next((each for each in self.accounts if each.access_key == access_key), None)


@dataclass(frozen=True, slots=True)
class AccessQuestion:
    """May this account, from this address, do this to a topic or a group?"""

    address: str
    action: str
    access_key: str = ""
    topic: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """A broker's answer: allowed or not, why, and the line of its file that decides.

    `validators` are its extensions that have to agree as well, and were not asked.
    """

    is_allowed: bool
    reason: str
    rule: str
    needs_fresh_signature: bool
    validators: tuple[str, ...] = ()
