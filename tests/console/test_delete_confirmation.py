"""The confirmation before something is deleted."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from console.people.audit.models import Entry
from tests.console.test_frame import CONSOLE

if TYPE_CHECKING:
    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors

pytestmark = pytest.mark.django_db

DELETE = "/topics/t/Orders/delete/"


@pytest.fixture
def world(brokers: FakeBroker) -> FakeBroker:
    brokers.add_topic("Orders", queue_nums=2)
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.add_group("idle")
    brokers.offsets["idle", "Orders", 0] = 1
    return brokers


def effects(html: str) -> dict[str, str]:
    """Return the counts in a confirmation, by label."""
    found = re.findall(r"<dt>([^<]+)</dt>\s*<dd>([^<]*)", html)
    return {label: value.strip() for label, value in found}


def test_a_confirmation_counts_what_depends_on_the_topic(actors: Actors, world: FakeBroker) -> None:
    html = actors.admin.get(DELETE).content.decode()

    assert effects(html) == {
        "Messages retained": "3",
        "Queues": "2",
        "Groups that lose their offsets here": "2",
        "Groups with connected consumers": "1",
    }
    assert "be restored" in html
    assert 'data-must-equal="Orders"' in html
    assert "Orders" in world.topic_configs


def test_another_name_removes_nothing_and_is_reported(actors: Actors, world: FakeBroker) -> None:
    answer = actors.admin.post(DELETE, {"name": "orders"})

    assert answer.status_code == 422
    assert "The name you typed" in answer.content.decode()
    assert "Orders" in world.topic_configs
    assert not Entry.objects.exists()


def test_an_entry_changed_since_it_was_viewed_is_not_deleted(
    actors: Actors, world: FakeBroker
) -> None:
    seen = actors.admin.get(DELETE).context["danger"].hidden["seen"]
    world.topic_configs["Orders"] = replace(world.topic_configs["Orders"], perm=4)

    for token in (seen, "forged"):
        answer = actors.admin.post(DELETE, {"name": "Orders", "seen": token})
        assert "The configuration changed while this page was open" in answer.content.decode()
    assert "Orders" in world.topic_configs

    seen = actors.admin.get(DELETE).context["danger"].hidden["seen"]
    assert actors.admin.post(DELETE, {"name": "Orders", "seen": seen}).status_code == 302
    assert "Orders" not in world.topic_configs


def test_an_unavailable_action_has_no_button(actors: Actors, world: FakeBroker) -> None:
    html = actors.admin.get(reverse("groups:delete", args=["billing"])).content.decode()

    assert "has connected consumers" in html
    assert "button--danger button--primary" not in html


def test_a_group_without_a_configuration_needs_its_name_typed(
    actors: Actors, world: FakeBroker
) -> None:
    del world.group_configs["idle"]
    url = reverse("groups:delete", args=["idle"])

    assert actors.admin.post(url, {"remove_offset": "on"}).status_code == 422
    answer = actors.admin.post(url, {"remove_offset": "on", "name": "idle"}, follow=True)

    assert not world.offsets
    assert 'class="toast"' in answer.content.decode()
    assert "/undo/" not in answer.content.decode()


def test_every_confirmation_of_the_console_uses_the_one_component() -> None:
    """A separate dialog would need its own script and wouldn't work without one."""
    wrong = [
        path.name
        for path in CONSOLE.rglob("*.html")
        if "data-must-equal" in path.read_text() and path.name != "danger_form.html"
    ]

    assert wrong == []
