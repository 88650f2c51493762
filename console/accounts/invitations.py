"""Invitations: created for a name, accepted once with the link, expired after three days."""

from __future__ import annotations

import hashlib
import logging
import secrets
import smtplib
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.mail import BadHeaderError, EmailMessage
from django.db import transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from console.accounts.lookalikes import refuse_lookalike
from console.accounts.models import INVITATION_LIFETIME, Invitation
from console.accounts.roles import Role, give_role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.auth.models import User

    from console.accounts.models import CustomRole

logger = logging.getLogger(__name__)

TOKEN_BYTES = 24


class InvitationUsedError(Exception):
    """The invitation was accepted or revoked meanwhile, or its name now resembles another one."""


def invite(
    name: str, role: Role, mail: str, by: str, custom_roles: Iterable[CustomRole] = ()
) -> tuple[Invitation, str]:
    """Create an invitation; return it with its link, which can't be read again.

    An expired invitation of the same name is replaced.
    """
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with transaction.atomic():
        Invitation.objects.filter(name=name, expires_at__lte=timezone.now()).delete()
        invitation = Invitation.objects.create(
            name=name,
            role=role.value,
            mail=mail,
            digest=digest_of(token),
            by=by,
            expires_at=timezone.now() + INVITATION_LIFETIME,
        )
        invitation.custom_roles.set(custom_roles)
    return invitation, settings.TREBUCHET_URL + reverse("accounts:join", args=[token])


def open_invitation(token: str) -> Invitation | None:
    """Return the invitation of a link, or None if it was accepted, revoked or has expired."""
    now = timezone.now()
    return Invitation.objects.filter(digest=digest_of(token), expires_at__gt=now).first()


def accept_invitation(invitation: Invitation, password: str) -> User:
    """Create the account and invalidate the link.

    Raises:
        InvitationUsedError: the link was used in the meantime.
    """
    try:
        # An account with a similar name may have been created since the invitation.
        refuse_lookalike(invitation.name, invited_as=invitation.name)
    except ValidationError as error:
        raise InvitationUsedError from error
    account = get_user_model()(username=invitation.name, email=invitation.mail)
    # Before the transaction: hashing is slow, and the database has one writer.
    account.set_password(password)
    custom_roles = list(invitation.custom_roles.all())
    with transaction.atomic():
        deleted, _by_model = Invitation.objects.filter(
            pk=invitation.pk, expires_at__gt=timezone.now()
        ).delete()
        if not deleted or get_user_model().objects.filter(username=invitation.name).exists():
            raise InvitationUsedError
        account.save()
        give_role(account, Role(invitation.role))
        account.custom_roles.set(custom_roles)
    return account


def send(invitation: Invitation, link: str) -> str:
    """Email the link; return the reason for a failure, or an empty string."""
    text = _(
        "%(by)s has invited you to a message broker console as %(name)s.\n\nUse this link "
        "within three days to choose a password:\n%(link)s\n"
    ) % {"by": invitation.by, "name": invitation.name, "link": link}
    mail = EmailMessage(
        subject=_("Your Trebuchet account"),
        body=text,
        to=[invitation.mail],
        headers={"Auto-Submitted": "auto-generated"},
    )
    try:
        mail.send()
    except (OSError, smtplib.SMTPException, BadHeaderError) as error:
        logger.warning("invitation not mailed error=%s", type(error).__name__)
        return _("The mail server didn't accept the e-mail: %(why)s.") % {
            "why": type(error).__name__
        }
    return ""


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
