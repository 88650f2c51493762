"""Subscription groups: list, members, progress, configuration."""

from __future__ import annotations

import pytest
from django.urls import reverse

from console.audit.models import Entry
from tests.console.plans import applied

pytestmark = pytest.mark.django_db


def new_group(**changes: object) -> dict[str, object]:
    return {
        "group": "billing",
        "broker_names": ["broker-a"],
        "consume_enable": "on",
        "consume_broadcast_enable": "on",
        "consume_from_min_enable": "on",
        "notify_consumer_ids_changed_enable": "on",
        "retry_max_times": 16,
        "retry_queue_nums": 1,
        "broker_id": 0,
        "which_broker_when_consume_slowly": 1,
    } | changes


def test_the_list_shows_who_is_online_and_who_lags(actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.add_group("shipping")
    brokers.offsets["shipping", "Orders", 0] = 1
    brokers.add_group("TOOLS_CONSUMER")

    html = actors.reader.get(reverse("groups:list")).content.decode()

    assert "online" in html
    assert "offline" in html
    assert "TOOLS_CONSUMER" not in html


def test_a_group_with_offsets_and_no_configuration_is_still_listed(actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.offsets["orphan", "Orders", 0] = 0

    html = actors.reader.get(reverse("groups:list")).content.decode()

    assert "orphan" in html
    assert "no configuration" in html


def test_a_group_page_shows_members_subscriptions_progress(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.offsets["billing", "Orders", 0] = 1

    html = actors.reader.get(reverse("groups:detail", args=["billing"])).content.decode()

    assert "billing@1" in html
    assert "127.0.0.1:50001" in html
    assert "TAG" in html
    assert "2 msg behind" in html
    assert "never committed an offset in this queue" in html  # queue 1


def test_a_group_that_is_not_there_is_not_found(actors, brokers) -> None:
    assert actors.reader.get(reverse("groups:detail", args=["nope"])).status_code == 404


def test_an_administrator_creates_a_group(actors, brokers) -> None:
    data = new_group(consume_enable="", retry_max_times=3)

    response = applied(actors.admin, reverse("groups:create"), data)

    assert response.status_code == 302
    config = brokers.group_configs["billing"]
    assert config.consume_enable is False
    assert config.consume_broadcast_enable is True
    assert config.retry_max_times == 3
    assert Entry.objects.get().action == "group.create"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"group": "a b"}, "A name consists of letters"),
        ({"group": "x" * 249}, "at most 248 characters; this one has 249"),
        ({"group": "TOOLS_CONSUMER"}, "reserved"),
        ({"group": "taken"}, "A group of this name exists."),
        ({"retry_max_times": -2}, "greater than or equal to -1"),
        ({"retry_queue_nums": 65}, "less than or equal to 64"),
    ],
)
def test_a_group_that_cannot_be_is_refused_in_the_form(changes, sentence, actors, brokers) -> None:
    brokers.add_group("taken")

    response = actors.admin.post(reverse("groups:create"), new_group(**changes))

    assert response.status_code == 200
    assert sentence in response.content.decode()
    assert set(brokers.group_configs) == {"taken"}


def test_an_edit_records_before_and_after(actors, brokers) -> None:
    brokers.add_group("billing")

    url = reverse("groups:edit", args=["billing"])
    response = applied(actors.admin, url, new_group(retry_max_times=2))

    assert response.status_code == 302
    assert brokers.group_configs["billing"].retry_max_times == 2
    entry = Entry.objects.get()
    assert entry.before["broker-a"]["retry_max_times"] == 16
    assert entry.after["broker-a"]["retry_max_times"] == 2


def test_a_group_with_members_is_not_deleted(actors, brokers) -> None:
    brokers.add_group("billing", online=True)

    actors.admin.post(reverse("groups:delete", args=["billing"]), {"name": "billing"})

    assert "billing" in brokers.group_configs


def test_a_deleted_group_leaves_its_offsets_unless_asked(actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    brokers.offsets["billing", "Orders", 0] = 0
    url = reverse("groups:delete", args=["billing"])

    actors.admin.post(url)
    assert "billing" not in brokers.group_configs
    assert brokers.offsets
    assert Entry.objects.get().before["offsets"][0]["offset"] == "0"

    actors.admin.post(url, {"name": "billing", "remove_offset": "on"})
    assert not brokers.offsets


def test_a_group_of_the_broker_itself_is_out_of_reach(actors, brokers) -> None:
    brokers.add_group("TOOLS_CONSUMER")

    response = actors.admin.post(
        reverse("groups:delete", args=["TOOLS_CONSUMER"]), {"name": "TOOLS_CONSUMER"}
    )

    assert response.status_code == 403


def test_a_client_says_its_version_by_name(actors, brokers) -> None:
    brokers.add_group("billing", online=True, topic="Orders")

    page = actors.reader.get(reverse("groups:detail", args=["billing"])).text

    assert "v4_9_7" in page
    assert ">407<" not in page
