"""Account: a client's keys and permissions.

Source: acl/plain/PlainAccessResource.java, acl/common/Permission.java (4.9.7).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broker_core.access.address_rule import parse_rule
from broker_core.message import names
from broker_core.message.names import RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker_core.access.address_rule import AddressRule

KEY_CHARS_MIN = 7
"""The shortest access key or secret key."""


class Permission:
    """Bits of a permission. Plain integers, because each enum operator costs a microsecond."""

    DENY = 1
    PUB = 4
    SUB = 8


BROKERS_OWN_TOPICS = frozenset(
    {
        names.RMQ_SYS_SCHEDULE_TOPIC,
        names.RMQ_SYS_TRANS_HALF_TOPIC,
        names.RMQ_SYS_TRANS_OP_HALF_TOPIC,
        names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
        names.RMQ_SYS_TIMER_TOPIC,
    }
)
"""The broker stores messages of all topics in these; a default permission doesn't cover them."""

WORDS = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}


@dataclass(frozen=True, slots=True)
class Account:
    """An account of plain_acl.yml. Immutable."""

    access_key: str
    secret_key: str = field(repr=False)
    white_address: AddressRule = field(repr=False)
    is_admin: bool
    is_broker: bool
    """Whether a broker may register with it."""
    default_topic_perm: int
    default_group_perm: int
    permissions: Mapping[str, int]
    """Resource -> permission bits. The resource of a group is the name of its retry topic."""
    requires_fresh_signature: bool = False
    """Whether each of its requests must have a fresh signature, which is valid once, from any
    address.
    """

    def permission(self, resource: str) -> int:
        """Return the permission for a resource, or the default.

        Differs: in RocketMQ the default permission for topics also covers the broker's own
        topics.
        """
        found = self.permissions.get(resource)
        if found is not None:
            return found
        if resource in BROKERS_OWN_TOPICS and not self.is_admin:
            return Permission.DENY
        is_group = resource.startswith(RETRY_GROUP_TOPIC_PREFIX)
        return self.default_group_perm if is_group else self.default_topic_perm

    def may(self, action: int, resource: str) -> bool:
        """Return whether an action is allowed; DENY overrides every other bit."""
        if self.is_admin and not self.permissions:
            return True
        permission = self.permission(resource)
        return not permission & Permission.DENY and bool(permission & action)


def build_account(table: Mapping[str, Any]) -> Account:
    """Build an account from its entry in the file.

    Raises:
        ValueError: the entry isn't valid; the text names the account, never its secret.
    """
    access_key, secret_key = text_of(table.get("accessKey")), text_of(table.get("secretKey"))
    check_keys(access_key, secret_key)
    assert access_key is not None
    assert secret_key is not None
    permissions: dict[str, int] = {}
    for key, prefix in (("groupPerms", RETRY_GROUP_TOPIC_PREFIX), ("topicPerms", "")):
        for line in lines_of(table.get(key), f"{key} of {access_key}"):
            name, permission = parse_resource(line)
            permissions[prefix + name] = permission
    try:
        white_address = parse_rule(text_of(table.get("whiteRemoteAddress")))
    except ValueError as error:
        raise ValueError(f"whiteRemoteAddress of {access_key}: {error}") from error
    return Account(
        access_key=access_key,
        secret_key=secret_key,
        white_address=white_address,
        is_admin=str(table.get("admin")).lower() == "true",
        is_broker=str(table.get("broker")).lower() == "true",
        default_topic_perm=parse_permission(text_of(table.get("defaultTopicPerm"))),
        default_group_perm=parse_permission(text_of(table.get("defaultGroupPerm"))),
        permissions=permissions,
        requires_fresh_signature=str(table.get("requireFreshSignature")).lower() == "true",
    )


def check_keys(access_key: str | None, secret_key: str | None) -> None:
    """Check both keys.

    Differs: RocketMQ's error text contains the secret key.

    Raises:
        ValueError: a key is missing or too short.
    """
    for key in (access_key, secret_key):
        if key is None or len(key) < KEY_CHARS_MIN:
            raise ValueError(
                f"The accessKey={access_key} and its secretKey cannot be null and length should "
                f"longer than {KEY_CHARS_MIN - 1}"
            )


def parse_permission(word: str | None) -> int:
    """Return the bits of a word of WORDS; DENY for anything else, including None."""
    return WORDS.get((word or "").strip(), Permission.DENY)


def parse_resource(line: str) -> tuple[str, int]:
    """Split `name=PERM`.

    Raises:
        ValueError: the line doesn't have this form.
    """
    items = [item for item in line.split("=") if item]
    if len(items) != 2:
        raise ValueError(
            f"Parse Resource format error for {line}. The expected resource format is 'Res=Perm'. "
            "For example: topicA=SUB"
        )
    return items[0].strip(), parse_permission(items[1])


def check_resources(lines: Sequence[str]) -> None:
    """Check lines received over the wire; in a file an unknown permission means DENY.

    Raises:
        ValueError: a line is malformed, or its permission unknown.
    """
    for line in lines:
        parse_resource(line)
        if line.rpartition("=")[2].strip() not in WORDS:
            raise ValueError(
                f"Parse resource permission error for {line}. The expected permissions are 'SUB' "
                "or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )


def lines_of(value: object, what: str) -> list[str]:
    """Return a YAML list as texts; None becomes an empty list.

    Raises:
        ValueError: the value isn't a list.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{what} is not a list")
    return [str(item) for item in value]


def text_of(value: object) -> str | None:
    """Return a YAML scalar as text, so that keys made of digits need no quotes."""
    return None if value is None else str(value)
