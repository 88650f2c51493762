"""Signing in by OpenID Connect, with a real provider on loopback."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import reverse
from joserfc.jwk import OctKey, RSAKey

from console.accounts.models import CustomRole, Identity
from console.accounts.roles import Role, role_of
from console.env import Environment
from console.lib.moment import now_ms
from console.people.audit.models import Entry
from tests.support import oidc_provider
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "one"})


@pytest.fixture(scope="module")
def other_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "two"})


@pytest.fixture
def provider(key, settings, brokers, admin_account):
    cache.clear()
    with oidc_provider.running(key) as running:
        settings.TREBUCHET_OIDC_ISSUER = running.issuer
        settings.TREBUCHET_OIDC_CLIENT_ID = CLIENT_ID
        settings.TREBUCHET_OIDC_CLIENT_SECRET = CLIENT_SECRET
        settings.TREBUCHET_OIDC_NAME = "Example SSO"
        settings.TREBUCHET_OIDC_ROLES = {
            "ops": ("operator",),
            "admins": ("administrator",),
            "shop": ("role:Shop team",),
            "stock": ("viewer", "role:Stock, all of it"),
        }
        running.person["groups"] = ["staff", "ops"]
        yield running
    cache.clear()


def begun(client: Client, next_url: str = "") -> str:
    """Return the provider's address that a browser is redirected to."""
    answer = client.get(reverse("accounts:oidc"), {"next": next_url})
    assert answer.status_code == 302, answer.content
    return str(answer["location"])


def returned(client: Client, address: str):
    """Return to an address of the console, as the browser is redirected there."""
    parts = urlsplit(address)
    return client.get(f"{parts.path}?{parts.query}")


def sign_in(provider, client: Client | None = None, next_url: str = ""):
    browser = client or Client()
    return returned(browser, provider.authorized(begun(browser, next_url)))


def is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def refused_in(answer, status: int = 403) -> str:
    assert answer.status_code == status, answer.content
    (entry,) = Entry.objects.filter(action="account.sign-in")
    assert entry.outcome == "refused"
    return str(entry.remark)


def test_a_user_signs_in_with_their_groups_role(provider) -> None:
    browser = Client()

    answer = sign_in(provider, browser, "/topics/")

    assert (answer.status_code, answer["location"]) == (302, "/topics/")
    account = get_user_model().objects.get(username="grace")
    assert role_of(account) is Role.OPERATOR
    assert not account.has_usable_password()
    assert browser.get("/settings/").status_code == 200
    entries = dict(Entry.objects.values_list("action", "after"))
    assert entries["account.sign-in"] == {"with": provider.issuer}
    assert entries["account.join"] == {"role": "operator"}


def test_the_page_offers_it_only_if_it_is_enabled(provider, settings) -> None:
    on = Client().get(reverse("accounts:sign-in"), {"next": "/topics/?q=a&b=c"}).content.decode()
    settings.TREBUCHET_OIDC_ISSUER = ""
    off = Client().get(reverse("accounts:sign-in")).content.decode()

    assert "Sign in with Example SSO" in on
    assert "?next=/topics/%3Fq%3Da%26b%3Dc" in on
    assert "accounts/oidc" not in off
    assert Client().get(reverse("accounts:oidc")).status_code == 404
    assert Client().get(reverse("accounts:oidc-callback")).status_code == 404


def test_requests_to_the_provider_cannot_be_guessed_or_reused(provider) -> None:
    first, second = (parse_qs(urlsplit(begun(Client())).query) for _ in range(2))

    for name in ("state", "nonce", "code_challenge"):
        assert first[name] != second[name]
        assert len(first[name][0]) >= 20
    assert first["scope"] == ["openid profile"]
    assert first["redirect_uri"] == ["http://127.0.0.1:8000/accounts/oidc/callback/"]


def now_s() -> int:
    return now_ms() // 1_000


def expired(claims) -> None:
    claims |= {"exp": now_s() - 120, "iat": now_s() - 420}


def without_nonce(claims) -> None:
    del claims["nonce"]


BENT = {
    "wrong nonce": lambda claims: claims.update(nonce="another"),
    "no nonce": without_nonce,
    "wrong issuer": lambda claims: claims.update(iss="http://127.0.0.1:1"),
    "another client's token": lambda claims: claims.update(aud="other"),
    "another client's token, ours authorized": lambda claims: claims.update(
        aud=["other"], azp=CLIENT_ID
    ),
    "expired": expired,
    "from the future": lambda claims: claims.update(iat=now_s() + 3_600, nbf=now_s() + 3_600),
    "nobody": lambda claims: claims.pop("sub"),
}


@pytest.mark.parametrize("bend", BENT.values(), ids=BENT)
def test_a_token_for_another_sign_in_is_rejected(bend, provider) -> None:
    provider.bend = bend
    browser = Client()

    sentence = refused_in(sign_in(provider, browser))

    assert "be verified" in sentence
    assert not is_signed_in(browser)
    assert not Identity.objects.exists()


@pytest.mark.parametrize("kind", ["another key", "the client's secret", "none"])
def test_a_token_with_a_foreign_signature_is_rejected(kind, provider, other_key) -> None:
    if kind == "another key":
        provider.signing_key = other_key
    elif kind == "the client's secret":
        provider.algorithm = "HS256"
        provider.signing_key = OctKey.import_key(CLIENT_SECRET)
    else:
        provider.algorithm = "none"
        provider.signing_key = OctKey.import_key("x" * 32)
    browser = Client()

    answer = sign_in(provider, browser)

    assert answer.status_code in (403, 503)
    assert not is_signed_in(browser)
    assert not Identity.objects.exists()


def test_clocks_may_differ_by_less_than_a_minute(provider) -> None:
    now = now_s()
    provider.bend = lambda claims: claims.update(exp=now - 20, iat=now - 320)

    assert sign_in(provider).status_code == 302


def test_an_answer_is_valid_once_and_in_the_same_browser(provider) -> None:
    browser, other = Client(), Client()
    address = provider.authorized(begun(browser))

    stolen = returned(other, address)
    first = returned(browser, address)
    again = returned(browser, address)

    assert (stolen.status_code, first.status_code, again.status_code) == (403, 302, 403)
    assert not is_signed_in(other)


@pytest.mark.parametrize("query", ["", "code=x", "state=x", "code=x&state=x"])
def test_an_unrequested_answer_is_rejected(query, provider) -> None:
    browser = Client()

    answer = browser.get(f"{reverse('accounts:oidc-callback')}?{query}")

    assert answer.status_code == 403
    assert not is_signed_in(browser)


def test_the_providers_rejections_are_reported_and_never_quoted(provider) -> None:
    denied = Client().get(reverse("accounts:oidc-callback"), {"error": "access_denied"})
    strange = Client().get(reverse("accounts:oidc-callback"), {"error": "<b>call 0900</b>"})

    assert "The provider didn" in denied.content.decode()
    assert "0900" not in strange.content.decode()


def test_a_user_without_a_role_is_not_admitted_unless_a_setting_allows_it(
    provider, settings
) -> None:
    provider.person["groups"] = ["staff"]
    assert "assign a role" in refused_in(sign_in(provider))
    assert not get_user_model().objects.filter(username="grace").exists()

    settings.TREBUCHET_OIDC_DEFAULT_ROLE = "viewer"
    sign_in(provider)

    assert role_of(get_user_model().objects.get(username="grace")) is Role.VIEWER


@pytest.mark.parametrize("groups", [None, 7, {"ops": True}, [["ops"]], [None], "op"])
def test_groups_in_another_form_grant_no_role(groups, provider) -> None:
    provider.person["groups"] = groups

    assert sign_in(provider).status_code == 403


def test_groups_may_be_nested_deeper(provider, settings) -> None:
    settings.TREBUCHET_OIDC_CLAIM = "realm_access.roles"
    provider.person["realm_access"] = {"roles": ["admins", "ops"]}

    sign_in(provider)

    assert role_of(get_user_model().objects.get(username="grace")) is Role.ADMINISTRATOR


@pytest.mark.parametrize("name", ["ada", "ADA"])
def test_an_account_cannot_be_taken_over_by_its_name_or_mail(name, provider, admin_account) -> None:
    get_user_model().objects.filter(pk=admin_account.pk).update(email="ada@example.com")
    provider.person |= {"preferred_username": name, "email": "ada@example.com"}
    browser = Client()

    sentence = refused_in(sign_in(provider, browser))

    assert "Another account" in sentence
    assert not is_signed_in(browser)


@pytest.mark.parametrize("name", [None, "", "a b", "x" * 200, 7, "<script>"])
def test_a_name_that_no_account_can_have_is_rejected(name, provider) -> None:
    provider.person["preferred_username"] = name

    assert "send a name" in refused_in(sign_in(provider))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("\u0430da", "mixes similar-looking letters"),  # a Cyrillic a
        ("\u0430dmin", "mixes similar-looking letters"),
        ("\u0251da", "looks like the existing name ada"),  # a Latin alpha
    ],
    ids=ascii,
)
def test_a_lookalike_name_creates_no_account(name, why, provider, admin_account) -> None:
    provider.person["preferred_username"] = name
    browser = Client()

    assert why in refused_in(sign_in(provider, browser))
    assert not is_signed_in(browser)
    assert get_user_model().objects.count() == 1
    assert not Identity.objects.exists()


def test_full_width_letters_count_as_plain_ones(provider) -> None:
    provider.person["preferred_username"] = "\uff47race"

    sign_in(provider)

    assert get_user_model().objects.filter(username="grace").exists()


def test_a_role_follows_the_provider_but_a_name_does_not(provider) -> None:
    sign_in(provider)
    provider.person |= {"preferred_username": "hopper", "groups": ["admins"]}
    sign_in(provider)

    account = get_user_model().objects.get(username="grace")
    assert role_of(account) is Role.ADMINISTRATOR
    entry = Entry.objects.get(action="account.role")
    assert (entry.subject, entry.before, entry.after) == (
        "grace",
        {"role": "operator"},
        {"role": "administrator"},
    )
    assert get_user_model().objects.filter(username="hopper").count() == 0


def test_losing_every_group_ends_sessions_and_removes_the_role(provider) -> None:
    browser = Client()
    sign_in(provider, browser)
    provider.person["groups"] = []

    answer = sign_in(provider)

    assert answer.status_code == 403
    assert browser.get("/settings/").status_code == 302
    assert role_of(get_user_model().objects.get(username="grace")) is Role.LIMITED


def made_here(name: str, topics: str) -> CustomRole:
    return CustomRole.objects.create(name=name, actions=["message.see"], topics=[topics])


def roles_of(name: str = "grace") -> tuple[Role, set[str]]:
    account = get_user_model().objects.get(username=name)
    return role_of(account), {each.name for each in account.custom_roles.all()}


def test_a_directory_group_grants_a_custom_role_and_its_permissions(provider, brokers) -> None:
    made_here("Shop team", "Orders")
    brokers.add_topic("Orders")
    provider.person["groups"] = ["shop"]
    browser = Client()

    assert sign_in(provider, browser).status_code == 302

    assert roles_of() == (Role.LIMITED, {"Shop team"})
    assert browser.get("/messages/?topic=Orders&range=1h").status_code == 200
    assert browser.get("/topics/t/Orders/edit/").status_code == 403
    joined = Entry.objects.get(action="account.join")
    assert joined.after == {"role": "limited", "custom_roles": ["Shop team"]}


def test_custom_roles_follow_the_groups_and_others_stay_as_assigned(provider) -> None:
    made_here("Shop team", "Orders")
    made_here("Stock, all of it", "Stock")
    by_hand = made_here("By hand", "Audit")
    provider.person["groups"] = ["shop", "stock"]
    sign_in(provider)
    assert roles_of() == (Role.VIEWER, {"Shop team", "Stock, all of it"})
    get_user_model().objects.get(username="grace").custom_roles.add(by_hand)

    provider.person["groups"] = ["stock"]
    sign_in(provider)

    assert roles_of() == (Role.VIEWER, {"Stock, all of it", "By hand"})
    entry = Entry.objects.get(action="account.role")
    assert entry.before["custom_roles"] == ["By hand", "Shop team", "Stock, all of it"]
    assert entry.after == {"role": "viewer", "custom_roles": ["By hand", "Stock, all of it"]}
    provider.person["groups"] = []
    assert sign_in(provider).status_code == 403
    assert roles_of() == (Role.LIMITED, {"By hand"})


def test_an_unknown_role_is_named_and_grants_no_access(provider) -> None:
    provider.person["groups"] = ["ops", "shop"]

    answer = sign_in(provider)

    text = refused_in(answer)
    assert "Your group shop is mapped to the role “Shop team”" in text
    assert "TREBUCHET_OIDC_ROLES" in answer.content.decode()
    assert not get_user_model().objects.filter(username="grace").exists()


def test_a_deleted_role_takes_nothing_else_from_its_members(provider) -> None:
    role = made_here("Shop team", "Orders")
    provider.person["groups"] = ["ops", "shop"]
    browser = Client()
    sign_in(provider, browser)
    role.delete()

    assert sign_in(provider).status_code == 403
    assert roles_of() == (Role.OPERATOR, set())
    assert browser.get("/settings/").status_code == 200


def test_an_administrator_signs_in_and_creates_the_missing_role(provider) -> None:
    provider.person["groups"] = ["shop", "admins"]

    assert sign_in(provider).status_code == 302
    assert roles_of() == (Role.ADMINISTRATOR, set())


def test_a_disabled_account_stays_disabled(provider) -> None:
    sign_in(provider)
    get_user_model().objects.filter(username="grace").update(is_active=False)

    assert sign_in(provider).status_code == 403


def test_a_provider_account_does_not_count_as_the_last_administrator(
    provider, admin_account
) -> None:
    """A local account remains, in case the provider is down."""
    provider.person["groups"] = ["admins"]
    sign_in(provider)

    refused = Client()
    refused.force_login(get_user_model().objects.get(username="grace"))
    refused.post(reverse("people:switch", args=[admin_account.pk]), {"enabled": "off"})

    admin_account.refresh_from_db()
    assert admin_account.is_active


def test_an_unreachable_provider_is_explained_and_a_password_still_works(
    provider, settings, admin_account
) -> None:
    provider.broken = 502
    broken = Client().get(reverse("accounts:oidc"))
    settings.TREBUCHET_OIDC_ISSUER = "http://127.0.0.1:1"
    away = Client().get(reverse("accounts:oidc"))

    assert (broken.status_code, away.status_code) == (503, 503)
    assert "Example SSO isn&#x27;t responding" in away.content.decode()
    password = {"username": "ada", "password": "correct horse battery"}
    assert Client().post(reverse("accounts:sign-in"), password).status_code == 302


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://other.example.com"},
        {"token_endpoint": "http://other.example.com/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": None},
    ],
)
def test_a_changed_or_unsafe_provider_is_not_contacted(metadata, provider) -> None:
    provider.metadata = metadata

    assert Client().get(reverse("accounts:oidc")).status_code == 503


def test_no_redirect_leads_to_another_host(provider) -> None:
    assert sign_in(provider, next_url="https://evil.example.com/")["location"] == "/"


def test_the_second_step_is_the_providers(provider, settings) -> None:
    settings.TREBUCHET_SECOND_STEP = "everyone"
    browser = Client()
    sign_in(provider, browser)

    page = browser.get("/settings/")
    assert page.status_code == 200
    assert reverse("accounts:password") not in page.content.decode()


def test_signing_out_ends_the_local_session(provider) -> None:
    browser = Client()
    sign_in(provider, browser)

    browser.post(reverse("accounts:sign-out"))

    assert not is_signed_in(browser)
    assert Entry.objects.filter(action="account.sign-out", actor_name="grace").exists()


@pytest.mark.parametrize(
    "variables",
    [
        {"ISSUER": "http://sso.example.com", "ID": "x"},
        {"ISSUER": "sso.example.com", "ID": "x"},
        {"ISSUER": "https://sso.example.com"},
    ],
)
def test_an_invalid_issuer_is_rejected_at_the_start(variables) -> None:
    with pytest.raises(ImproperlyConfigured):
        Environment(variables).issuer("ISSUER", client="ID")


def test_roles_are_written_as_pairs() -> None:
    roles = ("viewer", "operator")

    def read(text: str) -> dict[str, tuple[str, ...]]:
        return Environment({"R": text}).mapping("R", roles, "role:")

    assert read("ops = operator; cn=dev,dc=x=viewer;a=viewer;a=role:Shop, all") == {
        "ops": ("operator",),
        "cn=dev,dc=x": ("viewer",),
        "a": ("viewer", "role:Shop, all"),
    }
    for wrong in ("ops", "ops=king", "=viewer", "ops=role:", "ops=role:a=b"):
        with pytest.raises(ImproperlyConfigured, match="role:NAME"):
            read(wrong)
