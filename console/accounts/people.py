"""People of the console: their roles and states, and that an administrator always remains."""

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
    """Without this account nobody could see to people any more."""

    def __init__(self) -> None:
        super().__init__(
            _("This is the last administrator who can sign in: make somebody else one first.")
        )


@contextmanager
def administrator_remains() -> Iterator[None]:
    """Undo what the block does if it leaves no administrator who can sign in.

    Raises:
        LastAdministratorError: it would have.
    """
    administrators = get_user_model().objects.filter(is_staff=True, is_active=True)
    with transaction.atomic():
        # Two administrators who switch each other off take turns.
        list(administrators.select_for_update().values_list("pk", flat=True))
        yield
        if not any(each.has_usable_password() for each in administrators):
            raise LastAdministratorError


def is_last_administrator(account: User) -> bool:
    others = get_user_model().objects.filter(is_staff=True, is_active=True).exclude(pk=account.pk)
    is_one = account.is_staff and account.is_active
    return is_one and not any(each.has_usable_password() for each in others)


def audited(account: User) -> dict[str, Any]:
    """Return what the audit keeps of an account."""
    custom = [each.name for each in account.custom_roles.all()]
    kept = {"role": role_of(account).value, "enabled": account.is_active}
    return kept | ({"custom_roles": custom} if custom else {})


def fresh(pk: int) -> User:
    """Read an account anew: permissions are cached on the object."""
    return get_user_model().objects.get(pk=pk)
