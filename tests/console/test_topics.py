"""Topics: list, status, create, change, delete."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.urls import reverse

from console.audit.models import Entry
from console.gateway.answers import QueueStatus
from console.gateway.errors import RequestFailedError
from console.topics.rates import queue_rates

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def forget() -> None:
    cache.clear()


def new_topic(**changes: object) -> dict[str, object]:
    return {
        "topic": "Orders",
        "broker_names": ["broker-a"],
        "write_queue_nums": 4,
        "read_queue_nums": 4,
        "perm": 6,
    } | changes


def test_the_list_shows_clients_topics_first_and_others_on_demand(actors, brokers) -> None:
    for name in ("Orders", "%RETRY%billing", "%DLQ%billing", "TBW102"):
        brokers.add_topic(name)

    normal = actors.reader.get(reverse("topics:list")).content.decode()
    dead = actors.reader.get(reverse("topics:list"), {"kind": "dlq"}).content.decode()
    every = actors.reader.get(reverse("topics:list"), {"kind": "all"}).content.decode()

    assert "Orders" in normal
    assert "TBW102" not in normal
    assert "%DLQ%billing" in dead
    assert "Orders" not in dead
    assert "TBW102" in every


def test_the_list_filters_by_part_of_a_name(actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_topic("Payments")

    html = actors.reader.get(reverse("topics:list"), {"q": "PAY"}).content.decode()

    assert "Payments" in html
    assert ">Orders<" not in html


def test_a_long_list_has_pages(actors, brokers) -> None:
    for number in range(120):
        brokers.add_topic(f"topic-{number:03}", queue_nums=1)

    first = actors.reader.get(reverse("topics:list")).content.decode()
    last = actors.reader.get(reverse("topics:list"), {"page": "3"}).content.decode()

    assert "topic-049" in first
    assert "topic-050" not in first
    assert "topic-119" in last


def test_a_topic_page_shows_the_ends_of_each_queue(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    brokers.queues["Orders", 0].min_offset = 1_000
    brokers.put("Orders", 0, 1, 2, 3)

    html = actors.reader.get(reverse("topics:detail", args=["Orders"])).content.decode()

    assert "1\u202f000" in html
    assert "1\u202f003" in html


def test_names_with_percent_signs_have_pages(actors, brokers) -> None:
    brokers.add_topic("%RETRY%billing")

    response = actors.reader.get(reverse("topics:detail", args=["%RETRY%billing"]))

    assert response.status_code == 200


def test_a_topic_that_is_not_there_is_not_found(actors, brokers) -> None:
    assert actors.reader.get(reverse("topics:detail", args=["Nope"])).status_code == 404


def test_an_administrator_creates_a_topic_and_the_audit_knows(actors, brokers) -> None:
    response = actors.admin.post(reverse("topics:create"), new_topic())

    assert response.status_code == 302
    assert brokers.topic_configs["Orders"].write_queue_nums == 4
    entry = Entry.objects.get()
    assert (entry.actor_name, entry.action, entry.outcome) == ("ada", "topic.create", "done")
    assert entry.after["write_queue_nums"] == 4


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"topic": ""}, "This field is required."),
        ({"topic": "with blank"}, "A name consists of letters"),
        ({"topic": "Orders@x"}, "A name consists of letters"),
        ({"topic": "../etc"}, "A name consists of letters"),
        ({"topic": "x" * 128}, "at most 127 characters; this one has 128"),
        ({"topic": "%RETRY%x"}, "reserved"),
        ({"topic": "TBW102"}, "reserved"),
        ({"topic": "Taken"}, "A topic of this name exists."),
        ({"write_queue_nums": 0}, "greater than or equal to 1"),
        ({"write_queue_nums": 1025}, "less than or equal to 1024"),
        ({"read_queue_nums": "many"}, "whole number"),
        ({"read_queue_nums": 2}, "the last ones are never read"),
        ({"perm": 9}, "Select a valid choice"),
        ({"broker_names": ["broker-z"]}, "Select a valid choice"),
        ({"broker_names": []}, "This field is required."),
    ],
)
def test_a_topic_that_cannot_be_is_refused_in_the_form(changes, sentence, actors, brokers) -> None:
    brokers.add_topic("Taken")

    response = actors.admin.post(reverse("topics:create"), new_topic(**changes))

    assert response.status_code == 200
    assert sentence in response.content.decode()
    assert set(brokers.topic_configs) == {"Taken"}
    assert not Entry.objects.exists()


def test_what_the_broker_refuses_stands_in_the_form_and_in_the_audit(
    actors, brokers, monkeypatch
) -> None:
    def refuse(config, broker_names) -> None:
        raise RequestFailedError("127.0.0.1:10911", 1, "no more topics")

    monkeypatch.setattr(brokers, "save_topic", refuse)

    response = actors.admin.post(reverse("topics:create"), new_topic())

    assert "no more topics" in response.content.decode()
    assert Entry.objects.get().outcome == "failed"


def test_an_edit_keeps_the_name_and_records_before_and_after(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=4)
    data = new_topic(topic="Other", write_queue_nums=8, read_queue_nums=8)

    response = actors.admin.post(reverse("topics:edit", args=["Orders"]), data)

    assert response.status_code == 302
    assert set(brokers.topic_configs) == {"Orders"}
    assert brokers.topic_configs["Orders"].write_queue_nums == 8
    entry = Entry.objects.get()
    assert entry.before["broker-a"]["write_queue_nums"] == 4
    assert entry.after["broker-a"]["write_queue_nums"] == 8


def test_a_permission_that_the_form_does_not_offer_survives_an_edit(actors, brokers) -> None:
    brokers.add_topic("Orders", perm=0)

    actors.admin.post(reverse("topics:edit", args=["Orders"]), new_topic(perm=0))

    assert brokers.topic_configs["Orders"].perm == 0


def test_a_topic_is_deleted_when_its_name_was_typed(actors, brokers) -> None:
    brokers.add_topic("Orders")
    url = reverse("topics:delete", args=["Orders"])

    actors.admin.post(url, {"name": "orders"})
    assert "Orders" in brokers.topic_configs

    actors.admin.post(url, {"name": "Orders"})
    assert "Orders" not in brokers.topic_configs
    assert Entry.objects.get().action == "topic.delete"


@pytest.mark.parametrize("action", ["edit", "delete"])
def test_a_topic_of_the_broker_itself_is_out_of_reach(action, actors, brokers) -> None:
    brokers.add_topic("TBW102")

    url = reverse(f"topics:{action}", args=["TBW102"])
    response = actors.admin.post(url, new_topic(name="TBW102"))

    assert response.status_code == 403
    assert "TBW102" in brokers.topic_configs


def test_script_in_a_name_is_shown_as_text(actors, brokers) -> None:
    brokers.add_topic("<script>alert(1)</script>")

    html = actors.reader.get(reverse("topics:list")).content.decode()

    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def rows(*ends: int) -> list[QueueStatus]:
    return [QueueStatus("broker-a", number, 0, end, None) for number, end in enumerate(ends)]


def test_a_rate_needs_a_second_reading() -> None:
    assert queue_rates("Orders", rows(10, 20), 1_000) == {}


def test_a_rate_is_the_difference_of_two_readings() -> None:
    queue_rates("Orders", rows(10, 20), 0)

    assert queue_rates("Orders", rows(60, 20), 5_000) == {
        ("broker-a", 0): 10.0,
        ("broker-a", 1): 0.0,
    }


def test_a_queue_that_began_anew_has_no_rate() -> None:
    queue_rates("Orders", rows(10), 0)

    assert queue_rates("Orders", rows(3), 5_000) == {}
