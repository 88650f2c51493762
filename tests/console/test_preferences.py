"""A user's preferences: they persist, belong to the user, and reject invalid values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django import forms
from django.urls import reverse
from django.utils import timezone
from pytest_django.asserts import assertHTMLEqual

from console.lib.moment import now_ms
from console.lib.zones import ZoneSelect, zone_named, zone_names
from console.people.preferences.models import PLACES_MAX, Place, Preferences
from console.ui.templatetags import ui

pytestmark = pytest.mark.django_db

OWN = reverse("preferences:own")
PLACE = reverse("preferences:place")
NIGHT = {"zone": "Asia/Shanghai", "density": "dense", "theme": "dark"}
AT_MS = int(datetime(2026, 11, 21, 22, 45, 3, tzinfo=UTC).timestamp() * 1000)


def test_settings_belong_to_the_user_and_not_to_the_browser(actors, brokers) -> None:
    actors.reader.post(OWN, NIGHT)
    actors.reader.cookies.pop("trebuchet_theme")

    own = actors.reader.get("/").content.decode()
    other = actors.admin.get("/").content.decode()

    assert 'data-theme="dark" data-density="dense" data-zone="Asia/Shanghai"' in own
    assert 'data-theme="auto" data-density="normal" data-zone=""' in other


def test_pages_are_rendered_in_the_users_time_zone(actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, AT_MS)
    actors.reader.post(OWN, NIGHT)
    page = reverse("topics:detail", args=["Orders"])

    assert "2026-11-22 06:45:03" in actors.reader.get(page).content.decode()
    assert "2026-11-21 22:45:03" in actors.admin.get(page).content.decode()


@pytest.mark.parametrize(
    "wrong", [{"zone": "Moon/Crater"}, {"density": "tight"}, {"theme": "x onload=y"}]
)
def test_unknown_settings_are_rejected(wrong, actors, brokers) -> None:
    html = actors.reader.post(OWN, NIGHT | wrong).content.decode()

    assert "field__error" in html
    assert not Preferences.objects.exists()


def test_the_menus_state_is_kept(actors, brokers) -> None:
    answer = actors.reader.post(reverse("preferences:theme"), {"theme": "dark"})

    assert answer.status_code == 204
    assert Preferences.objects.get().theme == "dark"
    assert actors.reader.post(reverse("preferences:theme"), {"theme": "x"}).status_code == 400


def test_users_choose_from_geographic_time_zones() -> None:
    names = zone_names()

    assert names[0] == "UTC"
    assert {"Asia/Shanghai", "Europe/Berlin"} <= set(names)
    assert not {"Etc/GMT+3", "CET", "US/Eastern"} & set(names)


@pytest.mark.parametrize("value", [None, "", "b&", "c"])
def test_a_time_zone_select_equals_djangos(value) -> None:
    choices = [("", "none"), ("a", "A <b>"), ("b&", '"B"')]
    given = {"name": "zone", "value": value, "attrs": {"id": "id_zone", "required": True}}

    ours = ZoneSelect({"data-x": 'a"'}, choices).render(**given)

    assertHTMLEqual(ours, forms.Select({"data-x": 'a"'}, choices).render(**given))


def test_an_unknown_time_zone_is_utc() -> None:
    assert zone_named("Moon/Crater") is UTC
    assert zone_named("../etc/passwd") is UTC
    assert zone_named("Europe/Berlin") == ZoneInfo("Europe/Berlin")


def test_a_time_is_relative_for_less_than_a_day_and_exact_after_that() -> None:
    day = timedelta(days=1) / timedelta(milliseconds=1)

    with timezone.override(UTC):
        assert ">2 min ago</time>" in ui.age(now_ms() - 120_000)
        assert ">in 3 h</time>" in ui.age(now_ms() + 3 * 3_600_000 + 500)
        assert ">just now</time>" in ui.age(now_ms())
        assert "ago" not in ui.age(int(now_ms() - day))
        assert ">2026-11-21 22:45:03</time>" in ui.moment(AT_MS)
        assert 'title="2026-11-21 22:45:03 UTC"' in ui.moment(AT_MS)


def test_a_place_is_stored_once_and_forgotten(actors, brokers) -> None:
    place = {"address": "/topics/?kind=dlq", "label": "Dead letters"}

    assert actors.reader.post(PLACE, place).json() == {"kept": True}
    assert actors.reader.post(PLACE, place | {"label": "  DLQ "}).json() == {"kept": True}
    assert list(Place.objects.values_list("label", "kind", "user__username")) == [
        ("DLQ", "view", "rita")
    ]
    assert actors.admin.post(PLACE, place | {"keep": "off"}).json() == {"kept": False}
    assert Place.objects.count() == 1
    assert actors.reader.post(PLACE, place | {"keep": "off"}).json() == {"kept": False}
    assert not Place.objects.exists()


@pytest.mark.parametrize(
    "address",
    ["https://elsewhere.example/", "//elsewhere.example/", "/nowhere/", "", "javascript:x", "/\\x"],
)
def test_only_pages_of_this_console_are_places(address, actors, brokers) -> None:
    answer = actors.reader.post(PLACE, {"address": address, "label": "x"})

    assert answer.status_code == 400
    assert not Place.objects.exists()


def test_a_user_has_a_limited_number_of_places(actors, reader_account) -> None:
    Place.objects.bulk_create(
        Place(user=reader_account, kind="view", label="x", address=f"/topics/?page={number}")
        for number in range(PLACES_MAX)
    )

    answer = actors.reader.post(PLACE, {"address": "/groups/", "label": "Groups"})

    assert answer.status_code == 400
    assert "The limit is 100" in answer.json()["problem"]
