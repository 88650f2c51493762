"""Changes to accounts' roles and states that always leave an administrator."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model
from django.db import transaction
from django.utils.translation import gettext as _

from console.accounts.roles import role_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from django.contrib.auth.models import User


class LastAdministratorError(Exception):
    """The change would leave no administrator who can sign in."""

    def __init__(self) -> None:
        super().__init__(
            _(
                "This is the last administrator who can sign in. Make someone else an "
                "administrator first."
            )
        )


@contextmanager
def administrator_remains() -> Iterator[None]:
    """Roll back the block if it leaves no administrator who can sign in.

    Raises:
        LastAdministratorError: the block was rolled back.
    """
    administrators = get_user_model().objects.filter(is_staff=True, is_active=True)
    with transaction.atomic():
        # Lock the rows, so that two administrators can't disable each other at the same time.
        list(administrators.select_for_update().values_list("pk", flat=True))
        yield
        if not any(each.has_usable_password() for each in administrators):
            raise LastAdministratorError


def is_last_administrator(account: User) -> bool:
    others = get_user_model().objects.filter(is_staff=True, is_active=True).exclude(pk=account.pk)
    is_one = account.is_staff and account.is_active
    return is_one and not any(each.has_usable_password() for each in others)


def audit_state(account: User) -> dict[str, Any]:
    """Return an account in the form that the audit log stores."""
    custom = [each.name for each in account.custom_roles.all()]
    kept = {"role": role_of(account).value, "enabled": account.is_active}
    return kept | ({"custom_roles": custom} if custom else {})


def reload_account(pk: int) -> User:
    """Read an account from the database again, because the object caches permissions."""
    return get_user_model().objects.get(pk=pk)
