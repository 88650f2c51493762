"""Account: who may do what.

Source: acl/plain/PlainAccessResource.java, acl/common/Permission.java (4.9.7).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broker_core.access.address_rule import parse_rule
from broker_core.message.names import RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker_core.access.address_rule import AddressRule

KEY_CHARS_MIN = 7
"""Of an access key, and of a secret key."""


class Permission:
    """Bits of a permission. Plain numbers: an enumeration's operators cost a microsecond each."""

    DENY = 1
    PUB = 4
    SUB = 8


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
    default_topic_perm: int
    default_group_perm: int
    permissions: Mapping[str, int]
    """By resource; a group is the resource of its retry topic's name."""

    def owned(self, resource: str) -> int:
        """Return the permission for a resource, its own or the default one."""
        found = self.permissions.get(resource)
        if found is not None:
            return found
        is_group = resource.startswith(RETRY_GROUP_TOPIC_PREFIX)
        return self.default_group_perm if is_group else self.default_topic_perm

    def may(self, action: int, resource: str) -> bool:
        """Tell whether an action is allowed; what is denied is, whatever else is granted."""
        if self.is_admin and not self.permissions:
            return True
        owned = self.owned(resource)
        return not owned & Permission.DENY and bool(owned & action)


def build_account(table: Mapping[str, Any]) -> Account:
    """Return the account that an entry of the file describes.

    Raises:
        ValueError: a sentence that names the account, never its secret.
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
        default_topic_perm=parse_permission(text_of(table.get("defaultTopicPerm"))),
        default_group_perm=parse_permission(text_of(table.get("defaultGroupPerm"))),
        permissions=permissions,
    )


def check_keys(access_key: str | None, secret_key: str | None) -> None:
    """Refuse keys that are missing or short.

    Differs: the original's sentence holds the secret key.

    Raises:
        ValueError: one is.
    """
    for key in (access_key, secret_key):
        if key is None or len(key) < KEY_CHARS_MIN:
            raise ValueError(
                f"The accessKey={access_key} and its secretKey cannot be null and length should "
                f"longer than {KEY_CHARS_MIN - 1}"
            )


def parse_permission(word: str | None) -> int:
    """Return a permission by its word; any other word, and none, is DENY."""
    return WORDS.get((word or "").strip(), Permission.DENY)


def parse_resource(line: str) -> tuple[str, int]:
    """Split `name=PERM`.

    Raises:
        ValueError: it is not of that form.
    """
    items = [item for item in line.split("=") if item]
    if len(items) != 2:
        raise ValueError(
            f"Parse Resource format error for {line}. The expected resource format is 'Res=Perm'. "
            "For example: topicA=SUB"
        )
    return items[0].strip(), parse_permission(items[1])


def check_resources(lines: Sequence[str]) -> None:
    """Refuse lines whose permission is a word that nobody knows; in a file it means DENY.

    Raises:
        ValueError: there is one.
    """
    for line in lines:
        parse_resource(line)
        if line.rpartition("=")[2].strip() not in WORDS:
            raise ValueError(
                f"Parse resource permission error for {line}. The expected permissions are 'SUB' "
                "or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )


def lines_of(value: object, what: str) -> list[str]:
    """Return a list of texts, empty when there is none.

    Raises:
        ValueError: it is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{what} is no list")
    return [str(item) for item in value]


def text_of(value: object) -> str | None:
    """Return a scalar of YAML as text: keys of digits alone need no quotes."""
    return None if value is None else str(value)
