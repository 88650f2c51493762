"""Every address of the console: access, and the effects of GET."""

from __future__ import annotations

import pytest
from django.urls import NoReverseMatch, reverse

from tests.support.addresses import every_address

pytestmark = pytest.mark.django_db

# All addresses without sign-in; a longer list is a decision, not an accident.
PUBLIC = {"accounts:sign-in", "healthz", "readyz", "words"}
# A browser without an account can post its language.
POSTED_BY_STRANGERS = {"preferences:language"}
# Addresses that accept a token in a header instead of an account.
BY_TOKEN = {"marks:api"}
# Addresses that are off by default and need a setting.
OFF = {"metrics", "accounts:oidc", "accounts:oidc-callback"}
# Addresses with a signature; an invalid signature gets an error.
SIGNED = {"accounts:join", "alerts:silence-link"}
ARGUMENTS = {
    "topic": "Orders",
    "group": "billing",
    "pk": 1,
    "entry": 1,
    "run_id": "00000000-0000-0000-0000-000000000001",
    "slug": "traffic",
    "report": "traffic",
    "language": "en",
}


ALL = every_address()


def url_of(name: str, parameters: list[str]) -> str:
    for value in (None, 1, "00000000-0000-0000-0000-000000000001", "x"):
        arguments = {key: ARGUMENTS.get(key, "x") if value is None else value for key in parameters}
        try:
            return reverse(name, kwargs=arguments)
        except NoReverseMatch:
            continue
    raise AssertionError(f"{name} takes {parameters}: say what a value looks like")


@pytest.mark.parametrize(("name", "parameters"), ALL, ids=[name for name, _ in ALL])
def test_a_stranger_is_redirected_to_sign_in(name, parameters, actors, brokers) -> None:
    url = url_of(name, parameters)

    got = actors.stranger.get(url)
    posted = actors.stranger.post(url)

    if name in SIGNED:
        assert (got.status_code, posted.status_code) == (404, 404)
    elif name in OFF:
        assert (got.status_code, posted.status_code) == (404, 405)
    elif name in BY_TOKEN:
        assert (got.status_code, posted.status_code) == (405, 401)
    elif name in POSTED_BY_STRANGERS:
        assert (got.status_code, posted.status_code) == (405, 400)
    elif name in PUBLIC:
        assert got.status_code == 200
    else:
        assert got.status_code == 302
        assert got["location"].startswith(reverse("accounts:sign-in"))
        assert posted.status_code == 302
        assert posted["location"].startswith(reverse("accounts:sign-in"))


def test_the_walk_sees_every_part() -> None:
    parts = {name.partition(":")[0] for name, _ in ALL}

    assert {"overview", "topics", "groups", "offsets", "audit", "accounts", "tracing"} <= parts
    assert {name for name, _ in ALL} >= PUBLIC


@pytest.mark.parametrize(
    "name",
    [
        "topics:create",
        "topics:edit",
        "groups:create",
        "groups:edit",
        "topics:delete",
        "groups:delete",
        "topics:undo",
        "groups:undo",
        "offsets:preview",
        "offsets:restore",
        "audit:list",
    ],
)
def test_a_read_only_user_may_not_open_forms_that_change_things(name, actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    parameters = dict(ALL)[name]

    response = actors.reader.get(url_of(name, parameters))

    assert response.status_code == 403
    assert "administrator" in response.content.decode()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("topics:create", {"topic": "New", "perm": "6"}),
        ("topics:edit", {"perm": "4"}),
        ("topics:delete", {"name": "Orders"}),
        ("groups:create", {"group": "new"}),
        ("groups:edit", {"retry_max_times": "1"}),
        ("groups:delete", {"name": "billing"}),
        ("offsets:apply", {"token": "x"}),
    ],
)
def test_a_read_only_user_may_not_post_changes(name, data, actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    topics, groups = dict(brokers.topic_configs), dict(brokers.group_configs)

    response = actors.reader.post(url_of(name, dict(ALL)[name]), data)

    assert response.status_code == 403
    assert brokers.topic_configs == topics
    assert brokers.group_configs == groups


@pytest.mark.parametrize("name", ["offsets:apply", "reports:schedule-switch", "demo:start"])
def test_pages_that_only_change_things_reject_get(name, actors, brokers) -> None:
    response = actors.admin.get(url_of(name, dict(ALL)[name]))

    assert response.status_code == 405


@pytest.mark.parametrize("name", ["topics:delete", "groups:delete"])
def test_a_get_of_a_confirmation_page_changes_nothing(name, actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing")

    response = actors.admin.get(url_of(name, dict(ALL)[name]), {"name": "Orders"})

    assert response.status_code == 200
    assert (set(brokers.topic_configs), set(brokers.group_configs)) == ({"Orders"}, {"billing"})


def test_a_post_without_the_form_token_is_rejected(admin_account, brokers, client) -> None:
    brokers.add_topic("Orders")
    client.handler.enforce_csrf_checks = True
    client.force_login(admin_account)

    response = client.post(reverse("topics:delete", args=["Orders"]), {"name": "Orders"})

    assert response.status_code == 403
    assert "expired" in response.content.decode()
    assert "Orders" in brokers.topic_configs
