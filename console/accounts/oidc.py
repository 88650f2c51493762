"""OpenID Connect: the identity provider authenticates people, and their groups there give roles.

Authlib implements the protocol: the code flow with PKCE (S256), state and nonce, and the signature
and claims of the ID token. An account belongs to one subject of one issuer. Accounts are not
matched by name or email address: anyone who can choose those at the provider could take over
another person's account.
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
from console.accounts.people import audit_state
from console.accounts.roles import Role, give_role, role_of
from console.accounts.signed_in import end_others

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse

NAME = "oidc"
CUSTOM = "role:"
"""Prefix of a custom role's name in TREBUCHET_OIDC_ROLES."""
STATE_PREFIX = f"_state_{NAME}_"
TIMEOUT_S = 5
SKEW_S = 60
"""The allowed difference between the provider's clock and this one."""
METADATA_KEPT_S = 600
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Signatures with the provider's own key; never `none` or the client secret."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class ProviderUnreachableError(Exception):
    """The provider is unreachable or its response is invalid; the person is not authenticated."""


class SignInRefusedError(Exception):
    """The provider or this console refused a person; the error has the reason and the person."""

    def __init__(self, sentence: str, subject: str = "") -> None:
        super().__init__(sentence)
        self.subject = subject


class ProviderSignIn(NamedTuple):
    """A person who signed in through the provider; `before` is None for a new account."""

    account: User
    before: dict[str, Any] | None
    after: dict[str, Any]


class GrantedRoles(NamedTuple):
    """The roles that the provider's groups give."""

    role: Role
    custom: tuple[CustomRole, ...]


def is_on() -> bool:
    return bool(settings.TREBUCHET_OIDC_ISSUER)


def begin(request: HttpRequest) -> HttpResponse:
    """Redirect a browser to the provider.

    Raises:
        ProviderUnreachableError: the provider is unreachable.
    """
    # One attempt per browser: a new attempt replaces the previous one.
    for key in list(request.session.keys()):
        if key.startswith(STATE_PREFIX):
            del request.session[key]
    answer: HttpResponse = call_provider(
        lambda: provider().authorize_redirect(request, redirect_address())
    )
    return answer


def finish(request: HttpRequest) -> ProviderSignIn:
    """Return the account of the person whom the provider sent back.

    Raises:
        ProviderUnreachableError: the provider is unreachable.
        SignInRefusedError: the person isn't allowed to sign in.
    """
    return sign_in_subject(claims_of(request))


def claims_of(request: HttpRequest) -> Mapping[str, Any]:
    """Return the verified claims about the person whom the provider sent back."""
    client = provider()
    options = {
        "iss": {"essential": True, "value": settings.TREBUCHET_OIDC_ISSUER},
        "aud": {"essential": True, "value": settings.TREBUCHET_OIDC_CLIENT_ID},
    }
    token = call_provider(
        lambda: client.authorize_access_token(request, claims_options=options, leeway=SKEW_S)
    )
    claims = token.get("userinfo")
    if not claims:
        raise SignInRefusedError(_("The provider didn't send your identity."))
    found: Mapping[str, Any] = claims
    return found


def call_provider(ask: Any) -> Any:
    """Call the provider; translate its failures into our errors."""
    try:
        return ask()
    except RequestException as error:
        raise ProviderUnreachableError from error
    except JoseError as error:
        text = _("The provider's response couldn't be verified (%(why)s). Start again.")
        raise SignInRefusedError(text % {"why": error.error}) from error
    except AuthlibBaseError as error:
        raise SignInRefusedError(sentence_of(str(error.error))) from error
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        # Authlib doesn't validate the shape of responses.
        raise ProviderUnreachableError from error


def sentence_of(code: str) -> str:
    """Return a sentence for a protocol error code, which may come from the query string."""
    match code:
        case "mismatching_state":
            return _("This sign-in attempt has expired or was started in another browser.")
        case "access_denied":
            return _("The provider didn't sign you in.")
        case _other:
            word = code if code.isascii() and code.replace("_", "").isalpha() else "error"
            return _("The provider returned an error: %(code)s.") % {"code": word[:60]}


def provider() -> Any:
    """Return Authlib's client with the provider's metadata loaded.

    Raises:
        ProviderUnreachableError: the provider is unreachable, or its issuer differs.
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
    metadata = call_provider(client.load_server_metadata)
    if metadata.get("issuer") != issuer or not has_safe_endpoints(metadata):
        raise ProviderUnreachableError
    algorithms = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
    metadata["id_token_signing_alg_values_supported"] = [e for e in ALGORITHMS if e in algorithms]
    cache.set(f"oidc.{issuer}", dict(metadata), METADATA_KEPT_S)
    return client


PUBLIC_CLIENT = {"token_endpoint_auth_method": "none"}
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


def has_safe_endpoints(metadata: Mapping[str, Any]) -> bool:
    """Return whether all endpoints of the provider are safe from eavesdropping."""
    return all(is_safe(str(metadata.get(each, ""))) for each in ENDPOINTS)


def is_safe(address: str) -> bool:
    """Return whether a URL uses TLS or points to this machine."""
    parts = urlsplit(address)
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    )


def redirect_address() -> str:
    """Return the URL that the provider redirects to; it must be registered there."""
    return f"{settings.TREBUCHET_URL}{reverse('accounts:oidc-callback')}"


def granted_roles(claims: Mapping[str, Any]) -> GrantedRoles | None:
    """Return the roles that the provider's groups give, or None if they give no role.

    Raises:
        SignInRefusedError: the mapping names a custom role that doesn't exist.
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
    # Administrators can do everything, and someone has to create the missing role.
    if role is Role.ADMINISTRATOR:
        return GrantedRoles(role, ())
    wanted = {word.removeprefix(CUSTOM): name for name, word in found if word.startswith(CUSTOM)}
    custom = tuple(CustomRole.objects.filter(name__in=wanted))
    missing = sorted(set(wanted) - {each.name for each in custom})
    if missing:
        text = _(
            "Your group %(group)s is mapped to the role “%(role)s”, which doesn't exist in "
            "this console. An administrator can create the role or correct "
            "TREBUCHET_OIDC_ROLES."
        )
        values = {"group": wanted[missing[0]], "role": missing[0]}
        raise SignInRefusedError(text % values)
    return GrantedRoles(role, custom)


def managed_roles() -> list[CustomRole]:
    """Return the custom roles that the provider manages; administrators manage the others."""
    words = {word for each in settings.TREBUCHET_OIDC_ROLES.values() for word in each}
    names = [word.removeprefix(CUSTOM) for word in words if word.startswith(CUSTOM)]
    return list(CustomRole.objects.filter(name__in=names))


def store_roles(account: User, given: GrantedRoles) -> None:
    """Store an account's roles."""
    if role_of(account) is not given.role:
        give_role(account, given.role)
    account.custom_roles.remove(*(each for each in managed_roles() if each not in given.custom))
    account.custom_roles.add(*given.custom)


def sign_in_subject(claims: Mapping[str, Any]) -> ProviderSignIn:
    """Return the account of a subject with its current roles; create it if it's new.

    Raises:
        SignInRefusedError: the person has no role or no name, or the account is disabled.
    """
    issuer, subject = settings.TREBUCHET_OIDC_ISSUER, str(claims["sub"])
    known = Identity.objects.filter(issuer=issuer, subject=subject).first()
    if known is None:
        given = granted_roles(claims)
        if given is None:
            raise SignInRefusedError(
                _("The provider recognised you but didn't assign a role in this console.")
            )
        account = create_account(issuer, subject, claims, given)
        return ProviderSignIn(account, before=None, after=audited_roles(account))
    account, name = known.user, known.user.get_username()
    if not account.is_active:
        raise SignInRefusedError(_("This account is disabled. Ask an administrator."), name)
    given = granted_roles(claims)
    if given is None:
        # The account's existing sessions and tokens lose their rights.
        store_roles(account, GrantedRoles(Role.LIMITED, ()))
        end_others(account, None)
        text = _("The provider no longer assigns you a role in this console.")
        raise SignInRefusedError(text, name)
    before = audited_roles(account)
    store_roles(account, given)
    return ProviderSignIn(account, before, audited_roles(account))


def audited_roles(account: User) -> dict[str, Any]:
    """Return the roles in the form that the audit log stores."""
    return {key: each for key, each in audit_state(account).items() if key != "enabled"}


def create_account(
    issuer: str, subject: str, claims: Mapping[str, Any], given: GrantedRoles
) -> User:
    """Create the account of a subject, under a name that isn't in use."""
    claimed_name = claims.get(settings.TREBUCHET_OIDC_NAME_CLAIM)
    people = get_user_model().objects
    # Normalize as Django does for stored accounts, such as full-width letters to plain ones.
    name = get_user_model().normalize_username(
        claimed_name if isinstance(claimed_name, str) else ""
    )
    try:
        UnicodeUsernameValidator()(name)
    except ValidationError as error:
        text = _("The provider didn't send a name that can be used for an account.")
        raise SignInRefusedError(text) from error
    taken = _("Another account named %(name)s already exists. Ask an administrator.")
    if len(name) > NAME_CHARACTERS_MAX:
        raise SignInRefusedError(
            _("The provider didn't send a name that can be used for an account.")
        )
    is_invited = Invitation.objects.filter(name__iexact=name).exists()
    if is_invited or people.filter(username__iexact=name).exists():
        raise SignInRefusedError(taken % {"name": name})
    try:
        refuse_lookalike(name)
    except ValidationError as error:
        text = _("%(why)s The provider's administrator can change this.")
        raise SignInRefusedError(text % {"why": " ".join(error.messages)}, name) from error
    try:
        with transaction.atomic():
            account = people.create_user(name)
            store_roles(account, given)
            Identity.objects.create(user=account, issuer=issuer, subject=subject)
    except IntegrityError as error:
        raise SignInRefusedError(taken % {"name": name}) from error
    return account
