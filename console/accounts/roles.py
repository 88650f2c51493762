"""Built-in roles, stored as flags and permissions of the account."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.models import Permission
from django.db import models
from django.utils.translation import gettext_lazy as _

from console.accounts.actions import Action

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.contrib.auth.models import AnonymousUser, User

OPERATE, LIMITED = "accounts.operate", "accounts.limited"
QUERY_LAKE = "sql.query_lake"


class Role(models.TextChoices):
    """A built-in role; each allows everything that the roles before it allow."""

    LIMITED = "limited", _("Limited")
    VIEWER = "viewer", _("Viewer")
    OPERATOR = "operator", _("Operator")
    ADMINISTRATOR = "administrator", _("Administrator")


MEANINGS = {
    Role.LIMITED: _(
        "Can view names and metrics. Custom roles grant access to messages and changes."
    ),
    Role.VIEWER: _("Can view all broker pages but can't change anything."),
    Role.OPERATOR: _(
        "Can change topics, groups and offsets, add marks, silence alerts and run reports."
    ),
    Role.ADMINISTRATOR: _("Full access, including people, brokers, alerts and the audit log."),
}


VIEWERS = frozenset({Action.SEE})
OPERATORS = VIEWERS | {
    Action.SEND,
    Action.TOPIC,
    Action.GROUP,
    Action.OFFSET,
    Action.REPLAY,
    Action.MEMBER,
    Action.DISCONNECT,
    Action.OPERATE,
}
BASE_ACTIONS: dict[Role, frozenset[Action]] = {
    Role.LIMITED: frozenset(),
    Role.VIEWER: VIEWERS,
    Role.OPERATOR: OPERATORS,
    Role.ADMINISTRATOR: frozenset(Action),
}
"""The actions that each role allows on every topic and group."""


def role_of(account: User) -> Role:
    """Return the stored role; a disabled account keeps its role without being able to use it."""
    return stored_roles([account])[0]


def stored_roles(accounts: Sequence[User]) -> list[Role]:
    """Return the stored role of each account."""
    operating, limited = holders(OPERATE), holders(LIMITED)
    return [
        Role.ADMINISTRATOR
        if each.is_staff
        else Role.OPERATOR
        if each.pk in operating
        else Role.LIMITED
        if each.pk in limited
        else Role.VIEWER
        for each in accounts
    ]


def holders(permission: str) -> set[int]:
    """Return the primary keys of accounts with a permission."""
    label, _dot, codename = permission.partition(".")
    allowed = Permission.objects.filter(codename=codename, content_type__app_label=label)
    return set(allowed.exclude(user=None).values_list("user", flat=True))


def acting_role(account: User | AnonymousUser) -> Role:
    """Return the current role of a signed-in person."""
    if may_administer(account):
        return Role.ADMINISTRATOR
    if account.has_perm(OPERATE):
        return Role.OPERATOR
    return Role.LIMITED if account.has_perm(LIMITED) else Role.VIEWER


def may_administer(account: User | AnonymousUser) -> bool:
    return account.is_authenticated and account.is_staff


def may_query(account: User | AnonymousUser) -> bool:
    """Return whether a person may run SQL queries on the lake."""
    return account.is_authenticated and (account.is_staff or account.has_perm(QUERY_LAKE))


def give_role(account: User, role: Role) -> None:
    """Store an account's role; other permissions stay as they are."""
    account.is_staff = account.is_superuser = role is Role.ADMINISTRATOR
    account.save(update_fields=["is_staff", "is_superuser"])
    for name, holder in ((OPERATE, Role.OPERATOR), (LIMITED, Role.LIMITED)):
        label, _dot, codename = name.partition(".")
        permission = Permission.objects.get(codename=codename, content_type__app_label=label)
        if role is holder:
            account.user_permissions.add(permission)
        else:
            account.user_permissions.remove(permission)
