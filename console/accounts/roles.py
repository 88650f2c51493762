"""Roles: what a person may do, as the flags and permissions of the account that stand for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.models import Permission
from django.db import models
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User

OPERATE = "accounts.operate"


class Role(models.TextChoices):
    """What a person may do; each role may do what those before it may."""

    VIEWER = "viewer", _("Viewer")
    OPERATOR = "operator", _("Operator")
    ADMINISTRATOR = "administrator", _("Administrator")


MEANINGS = {
    Role.VIEWER: _("Sees every page of the brokers, and changes nothing."),
    Role.OPERATOR: _(
        "Changes topics, groups and offsets, sets marks, silences alerts, runs reports."
    ),
    Role.ADMINISTRATOR: _("Does all of it, and sees to people, brokers, alerts and the audit."),
}


def role_of(account: User) -> Role:
    """Return the stored role; an account that is switched off has one, though it may do nothing."""
    if account.is_staff:
        return Role.ADMINISTRATOR
    return Role.OPERATOR if account.pk in operators() else Role.VIEWER


def operators() -> set[int]:
    """Return the accounts with the permission, by their keys."""
    label, _dot, codename = OPERATE.partition(".")
    allowed = Permission.objects.filter(codename=codename, content_type__app_label=label)
    return set(allowed.exclude(user=None).values_list("user", flat=True))


def acting_role(account: User | AnonymousUser) -> Role:
    """Return the role in which somebody who has signed in acts now."""
    if may_administer(account):
        return Role.ADMINISTRATOR
    return Role.OPERATOR if may_operate(account) else Role.VIEWER


def may_operate(account: User | AnonymousUser) -> bool:
    return account.is_authenticated and (account.is_staff or account.has_perm(OPERATE))


def may_administer(account: User | AnonymousUser) -> bool:
    return account.is_authenticated and account.is_staff


def give_role(account: User, role: Role) -> None:
    """Store the role of a stored account; other permissions stay as they are."""
    account.is_staff = account.is_superuser = role is Role.ADMINISTRATOR
    account.save(update_fields=["is_staff", "is_superuser"])
    label, _dot, codename = OPERATE.partition(".")
    operate = Permission.objects.get(codename=codename, content_type__app_label=label)
    if role is Role.OPERATOR:
        account.user_permissions.add(operate)
    else:
        account.user_permissions.remove(operate)
