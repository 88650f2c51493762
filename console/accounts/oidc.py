"""OpenID Connect: a person is who an identity provider says, in the role that its groups give.

Authlib speaks the protocol: the code flow with PKCE (S256), state and nonce, and the signature and
claims of the ID token. An account belongs to one subject of one issuer. Names and mail addresses
bind nothing: whoever could choose them at the provider would take over somebody's account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.django_client import OAuth
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.urls import reverse
from django.utils.translation import gettext as _
from joserfc.errors import JoseError
from requests import RequestException

from console.accounts.lookalikes import refuse_lookalike
from console.accounts.models import NAME_CHARACTERS_MAX, CustomRole, Identity, Invitation
from console.accounts.people import audited
from console.accounts.roles import Role, give_role, role_of
from console.accounts.signed_in import end_others

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse

NAME = "oidc"
CUSTOM = "role:"
"""What begins the name of a role made here, in TREBUCHET_OIDC_ROLES."""
STATE_PREFIX = f"_state_{NAME}_"
TIMEOUT_S = 5
SKEW_S = 60
"""So far the provider's clock and this one's may be apart."""
METADATA_KEPT_S = 600
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Signatures by a key of the provider's own; never `none`, never one with the client's secret."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class AwayError(Exception):
    """The provider does not answer, or answers nonsense; nothing is known of the person."""


class NotLetInError(Exception):
    """The provider or this console does not let somebody in: why, in a sentence, and whom."""

    def __init__(self, sentence: str, subject: str = "") -> None:
        super().__init__(sentence)
        self.subject = subject


class Entered(NamedTuple):
    """Somebody whom the provider vouches for, as the audit has them; new without a before."""

    account: User
    before: dict[str, Any] | None
    after: dict[str, Any]


class Given(NamedTuple):
    """What the provider's groups give."""

    role: Role
    custom: tuple[CustomRole, ...]


def is_on() -> bool:
    return bool(settings.TREBUCHET_OIDC_ISSUER)


def begin(request: HttpRequest) -> HttpResponse:
    """Lead a browser to the provider.

    Raises:
        AwayError: it does not answer.
    """
    # One attempt a browser: whoever begins anew has given up the one before.
    for key in list(request.session.keys()):
        if key.startswith(STATE_PREFIX):
            del request.session[key]
    answer: HttpResponse = told(lambda: provider().authorize_redirect(request, redirect_address()))
    return answer


def finish(request: HttpRequest) -> Entered:
    """Return whom the provider has sent back, with the account that is theirs.

    Raises:
        AwayError: the provider does not answer.
        NotLetInError: who comes is nobody who may.
    """
    return entered(claims_of(request))


def claims_of(request: HttpRequest) -> Mapping[str, Any]:
    """Return what the provider says of whom it has sent back, once all of it is checked."""
    client = provider()
    options = {
        "iss": {"essential": True, "value": settings.TREBUCHET_OIDC_ISSUER},
        "aud": {"essential": True, "value": settings.TREBUCHET_OIDC_CLIENT_ID},
    }
    token = told(
        lambda: client.authorize_access_token(request, claims_options=options, leeway=SKEW_S)
    )
    claims = token.get("userinfo")
    if not claims:
        raise NotLetInError(_("The provider says nothing about who you are."))
    found: Mapping[str, Any] = claims
    return found


def told(ask: Any) -> Any:
    """Return what the provider is asked for; its failures are ours."""
    try:
        return ask()
    except RequestException as error:
        raise AwayError from error
    except JoseError as error:
        said = _("The provider's answer is not to be trusted (%(why)s): begin again.")
        raise NotLetInError(said % {"why": error.error}) from error
    except AuthlibBaseError as error:
        raise NotLetInError(sentence_of(str(error.error))) from error
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        # Authlib takes an answer for what it should be.
        raise AwayError from error


def sentence_of(code: str) -> str:
    """Return what an error of the protocol means; its code may come from the address."""
    match code:
        case "mismatching_state":
            return _("This attempt to sign in is over, or was begun in another browser.")
        case "access_denied":
            return _("The provider did not let you in.")
        case _other:
            word = code if code.isascii() and code.replace("_", "").isalpha() else "error"
            return _("The provider refused: %(code)s.") % {"code": word[:60]}


def provider() -> Any:
    """Return the provider as Authlib knows it, with what it says of itself.

    Raises:
        AwayError: it does not answer, or is another one.
    """
    oauth = OAuth()
    issuer = settings.TREBUCHET_OIDC_ISSUER
    client = oauth.register(
        NAME,
        client_id=settings.TREBUCHET_OIDC_CLIENT_ID,
        client_secret=settings.TREBUCHET_OIDC_CLIENT_SECRET or None,
        server_metadata_url=f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        client_kwargs={
            "scope": settings.TREBUCHET_OIDC_SCOPE,
            "code_challenge_method": "S256",
            "default_timeout": TIMEOUT_S,
            **({} if settings.TREBUCHET_OIDC_CLIENT_SECRET else PUBLIC_CLIENT),
        },
    )
    kept = cache.get(f"oidc.{issuer}")
    if kept is not None:
        client.server_metadata.update(kept)
        return client
    metadata = told(client.load_server_metadata)
    if metadata.get("issuer") != issuer or not are_safe(metadata):
        raise AwayError
    said = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
    metadata["id_token_signing_alg_values_supported"] = [e for e in ALGORITHMS if e in said]
    cache.set(f"oidc.{issuer}", dict(metadata), METADATA_KEPT_S)
    return client


PUBLIC_CLIENT = {"token_endpoint_auth_method": "none"}
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


def are_safe(metadata: Mapping[str, Any]) -> bool:
    """Whether all that is asked of the provider goes where nobody listens."""
    return all(is_safe(str(metadata.get(each, ""))) for each in ENDPOINTS)


def is_safe(address: str) -> bool:
    """Whether an address has TLS, or leads to this machine."""
    parts = urlsplit(address)
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    )


def redirect_address() -> str:
    """Return the address that the provider sends people back to; it has to know it."""
    return f"{settings.TREBUCHET_URL}{reverse('accounts:oidc-callback')}"


def given_in(claims: Mapping[str, Any]) -> Given | None:
    """Return what the provider's groups give, None where they give nothing.

    Raises:
        NotLetInError: a role made here is given that is not here.
    """
    groups: Any = claims
    for part in settings.TREBUCHET_OIDC_CLAIM.split("."):
        groups = groups.get(part) if isinstance(groups, dict) else None
    names = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    mapped = settings.TREBUCHET_OIDC_ROLES
    found = [
        (name, word)
        for name in names
        if isinstance(name, str) and name in mapped
        for word in mapped[name]
    ]
    roles = [Role(word) for _name, word in found if not word.startswith(CUSTOM)]
    default = settings.TREBUCHET_OIDC_DEFAULT_ROLE
    if roles:
        role = max(roles, key=list(Role).index)
    elif found or default != "none":
        role = Role.LIMITED if default == "none" else Role(default)
    else:
        return None
    # An administrator may do all of it, and is the one who makes a role that is missing.
    if role is Role.ADMINISTRATOR:
        return Given(role, ())
    wanted = {word.removeprefix(CUSTOM): name for name, word in found if word.startswith(CUSTOM)}
    custom = tuple(CustomRole.objects.filter(name__in=wanted))
    missing = sorted(set(wanted) - {each.name for each in custom})
    if missing:
        said = _(
            "Your group %(group)s has the role “%(role)s” in this console, where there is none of "
            "that name: an administrator makes it, or corrects TREBUCHET_OIDC_ROLES."
        )
        values = {"group": wanted[missing[0]], "role": missing[0]}
        raise NotLetInError(said % values)
    return Given(role, custom)


def managed() -> list[CustomRole]:
    """Return the roles made here that the provider gives and takes; others stay with people."""
    words = {word for each in settings.TREBUCHET_OIDC_ROLES.values() for word in each}
    names = [word.removeprefix(CUSTOM) for word in words if word.startswith(CUSTOM)]
    return list(CustomRole.objects.filter(name__in=names))


def give(account: User, given: Given) -> None:
    """Store what somebody may do from now on."""
    if role_of(account) is not given.role:
        give_role(account, given.role)
    account.custom_roles.remove(*(each for each in managed() if each not in given.custom))
    account.custom_roles.add(*given.custom)


def entered(claims: Mapping[str, Any]) -> Entered:
    """Return the account of a subject, with the roles that it has now; a new one is made.

    Raises:
        NotLetInError: there is no role for it, or no name, or the account is switched off.
    """
    issuer, subject = settings.TREBUCHET_OIDC_ISSUER, str(claims["sub"])
    known = Identity.objects.filter(issuer=issuer, subject=subject).first()
    if known is None:
        given = given_in(claims)
        if given is None:
            raise NotLetInError(_("The provider knows you, and gives you no role in this console."))
        account = made(issuer, subject, claims, given)
        return Entered(account, before=None, after=roles_kept(account))
    account, name = known.user, known.user.get_username()
    if not account.is_active:
        raise NotLetInError(_("This account is switched off. Ask an administrator."), name)
    given = given_in(claims)
    if given is None:
        # What is left of it, sessions and tokens, is worth nothing more.
        give(account, Given(Role.LIMITED, ()))
        end_others(account, None)
        said = _("The provider gives you no role in this console any more.")
        raise NotLetInError(said, name)
    before = roles_kept(account)
    give(account, given)
    return Entered(account, before, roles_kept(account))


def roles_kept(account: User) -> dict[str, Any]:
    """Return what the audit keeps of somebody's roles."""
    return {key: each for key, each in audited(account).items() if key != "enabled"}


def made(issuer: str, subject: str, claims: Mapping[str, Any], given: Given) -> User:
    """Make the account of a subject, under a name that nobody here has."""
    told_name = claims.get(settings.TREBUCHET_OIDC_NAME_CLAIM)
    people = get_user_model().objects
    # As accounts are stored: letters of full width, for one, are the plain ones.
    name = get_user_model().normalize_username(told_name if isinstance(told_name, str) else "")
    try:
        UnicodeUsernameValidator()(name)
    except ValidationError as error:
        said = _("The provider tells no name that an account could have.")
        raise NotLetInError(said) from error
    taken = _("There is another account named %(name)s here: an administrator sees to it.")
    if len(name) > NAME_CHARACTERS_MAX:
        raise NotLetInError(_("The provider tells no name that an account could have."))
    is_invited = Invitation.objects.filter(name__iexact=name).exists()
    if is_invited or people.filter(username__iexact=name).exists():
        raise NotLetInError(taken % {"name": name})
    try:
        refuse_lookalike(name)
    except ValidationError as error:
        said = _("%(why)s The provider's administrator can change it.")
        raise NotLetInError(said % {"why": " ".join(error.messages)}, name) from error
    try:
        with transaction.atomic():
            account = people.create_user(name)
            give(account, given)
            Identity.objects.create(user=account, issuer=issuer, subject=subject)
    except IntegrityError as error:
        raise NotLetInError(taken % {"name": name}) from error
    return account
