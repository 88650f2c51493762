"""The search through all topics: finds keys and IDs without a topic, at a bounded cost."""

from __future__ import annotations

import html
import threading
from typing import TYPE_CHECKING

import pytest
from django.core.cache import cache
from django.urls import reverse

from console.accounts.models import CustomRole
from console.gateway.answers import Member
from console.gateway.connections import Producer
from console.gateway.errors import BrokerDownError
from console.gateway.fakes.browse import FakeBrowse
from console.lib.moment import now_ms
from console.lib.recognition import Location, is_client, location_in
from console.lib.stored import KeyFoundIn
from console.messages.browse import everywhere
from tests.console.api.conftest import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from console.gateway.fakes.broker import FakeBroker

pytestmark = pytest.mark.django_db

FIND = "/messages/find/"
UNIQUE = "0A0102031A2B18B4AAC257A100010002"


@pytest.fixture
def world(brokers: FakeBroker) -> Iterator[FakeBroker]:
    """Five topics with a message of order 7 in two of them, and a group with its dead letters."""
    cache.clear()
    for name in ("audit", "bills", "mails", "orders", "stock"):
        brokers.add_topic(name, queue_nums=1)
    brokers.put_message("bills", 0, b"{}", now_ms() - 2_000, KEYS="order-7")
    brokers.put_message("orders", 0, b"{}", now_ms() - 1_000, KEYS="order-7 eu", UNIQ_KEY=UNIQUE)
    brokers.add_group("billing", topic="orders")
    brokers.give_up("billing", "orders", now_ms() - 500, key="order-8")
    yield brokers
    cache.clear()


def topics_in(answer) -> list[str]:
    return [row.message.topic for row in answer.context["rows"]]


def words_in(answer) -> str:
    return " ".join(html.unescape(answer.text).split())


@pytest.mark.parametrize("by", ["key", "any"])
def test_a_key_is_found_in_every_topic_newest_first(by, actors, world) -> None:
    answer = actors.reader.get(FIND, {"by": by, "text": "order-7"})

    assert topics_in(answer) == ["orders", "bills"]
    assert "Searched all 6 topics." in words_in(answer)


@pytest.mark.parametrize("by", ["id", "any"])
def test_a_unique_key_or_id_leads_to_its_message_without_a_topic(by, actors, world) -> None:
    url = reverse("browse:message", args=["broker-a", 0, 0, "orders"])
    offset_id = actors.reader.get(url).context["message"].offset_msg_id

    for text in (UNIQUE, offset_id):
        assert actors.reader.get(FIND, {"by": by, "text": text})["location"] == url


def test_a_dead_letter_is_found_and_its_topic_comes_after_the_others(actors, world) -> None:
    answer = actors.reader.get(FIND, {"by": "key", "text": "order-8"})

    assert topics_in(answer) == ["%DLQ%billing"]
    assert world.searched[-1] == ("audit", "bills", "mails", "orders", "stock", "%DLQ%billing")


def test_a_step_searches_some_topics_and_a_link_continues(actors, world, monkeypatch) -> None:
    monkeypatch.setattr(everywhere, "TOPICS_MAX", 2)

    chosen = {"columns": ["topic", "keys"]}
    first = actors.reader.get(FIND, {"by": "key", "text": "order-7"} | chosen)
    link = f"{FIND}?{first.context['next_step']}"
    second = actors.reader.get(link, headers={"HX-Request": "true"})
    page = actors.reader.get(link)

    assert topics_in(first) == ["bills"]
    assert "Searched 2 of 6 topics." in words_in(first)
    assert "Search more topics" in first.text
    assert topics_in(second) == topics_in(page) == ["orders"]
    assert "order-7 eu" in second.text
    assert "broker-a:0" not in second.text
    assert "Searched 4 of 6 topics." in words_in(second)
    assert "<html" in page.text
    assert "<html" not in second.text
    assert world.searched[:2] == [("audit", "bills"), ("mails", "orders")]


def test_a_step_without_matches_does_not_deny_those_of_earlier_steps(
    actors, world, monkeypatch
) -> None:
    monkeypatch.setattr(everywhere, "TOPICS_MAX", 4)
    first = actors.reader.get(FIND, {"by": "key", "text": "order-7"})
    link = f"{FIND}?{first.context['next_step']}"

    second = actors.reader.get(link, headers={"HX-Request": "true"})

    assert topics_in(first) == ["orders", "bills"]
    assert "Searched all 6 topics." in words_in(second)
    assert "No more matches." in words_in(second)
    assert "contain no message" not in second.text


def test_a_topic_deleted_between_two_steps_leaves_no_other_one_out(
    actors, world, monkeypatch
) -> None:
    monkeypatch.setattr(everywhere, "TOPICS_MAX", 2)
    first = actors.reader.get(FIND, {"by": "key", "text": "order-7"})
    del world.topic_configs["bills"]

    actors.reader.get(f"{FIND}?{first.context['next_step']}")

    assert world.searched == [("audit", "bills"), ("mails", "orders")]


def test_a_deleted_retry_topic_keeps_its_place_in_the_order() -> None:
    after_topics = everywhere.order_of("%RETRY%billing", {})

    assert everywhere.order_of("stock", {}) < after_topics
    assert after_topics < everywhere.order_of("%DLQ%billing", {})


def test_programs_search_all_topics_in_the_same_steps(reader_account, world, monkeypatch) -> None:
    monkeypatch.setattr(everywhere, "TOPICS_MAX", 3)
    address, program = "/messages/find?by=key&text=order-7", Program(reader_account)

    first = program.get(address).json()
    second = program.get(f"{address}&cursor={first['next']}").json()

    assert [each["topic"] for each in first["items"]] == ["bills"]
    assert (first["searched_topics"], first["total_topics"]) == (3, 6)
    assert [each["topic"] for each in second["items"]] == ["orders"]
    assert (second["searched_topics"], second["next"]) == (6, None)


def test_only_topics_that_a_person_may_see_are_searched(limited, limited_account, world) -> None:
    role = CustomRole.objects.create(
        name="bills", actions=["message.see"], topics=["bills"], groups=[]
    )
    role.members.add(limited_account)

    answer = limited.get(FIND, {"by": "key", "text": "order-7"})

    assert topics_in(answer) == ["bills"]
    assert world.searched == [("bills",)]


def test_more_searches_than_the_limit_wait_and_then_ask_to_try_again(
    actors, world, monkeypatch
) -> None:
    room = threading.BoundedSemaphore(1)
    monkeypatch.setattr(everywhere, "room", room)
    monkeypatch.setattr(everywhere, "WAIT_S", 0.01)

    with room:
        answer = actors.reader.get(FIND, {"by": "key", "text": "order-7"})

    assert answer.status_code == 503
    assert "Other people are searching all topics right now." in answer.text
    assert world.searched == []
    assert actors.reader.get(FIND, {"by": "key", "text": "order-7"}).status_code == 200


def test_a_later_step_that_fails_keeps_the_rows_and_can_be_tried_again(
    actors, world, monkeypatch
) -> None:
    monkeypatch.setattr(everywhere, "TOPICS_MAX", 2)
    first = actors.reader.get(FIND, {"by": "key", "text": "order-7"})

    def fail(*_args: object) -> None:
        raise BrokerDownError("127.0.0.1:10911", "no connection")

    monkeypatch.setattr("console.messages.browse.lookups.search_topics", fail)
    link = f"{FIND}?{first.context['next_step']}"
    answer = actors.reader.get(link, headers={"HX-Request": "true"})

    assert answer.status_code == 200
    assert "Search failed" in answer.text
    assert "after=bills" in answer.text


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("order", "orders"),
        ("billing", "billing"),
        ("broker-a", "broker-a 0"),
        ("127.0.0.1:10911", "broker-a 0"),
        ("10.0.0.5", "shop@5"),
        ("shop@5", "shop@5"),
        ("10.0.0.9:4000", "worker@9"),
    ],
)
def test_the_search_box_recognises_names_clients_and_addresses(text, label, actors, world) -> None:
    world.producers = [
        Producer("shop", "shop@5", "10.0.0.5:4000", "JAVA", 407, now_ms(), ("broker-a",))
    ]
    world.members["billing"] = [Member("worker@9", "10.0.0.9:4000", "JAVA", 407, ("broker-a",))]

    answer = actors.reader.get(FIND, {"by": "any", "text": text})

    hits = answer.context["hits"].entries
    assert label in {entry.label for entry in hits}
    assert all(actors.admin.get(entry.url).status_code == 200 for entry in hits)


def test_a_location_in_the_search_box_leads_to_its_message(actors, world) -> None:
    typed = actors.reader.get(FIND, {"by": "any", "text": "orders broker-a:0 0"})

    answer = actors.reader.get(typed["location"])

    assert answer["location"] == reverse("browse:message", args=["broker-a", 0, 0, "orders"])
    lacking = actors.reader.get(FIND, {"by": "any", "text": "broker-a:0 17"})
    assert "A queue and offset also need a topic" in lacking.text
    assert world.searched == []


@pytest.mark.parametrize("by", ["key", "any", "id"])
def test_several_words_are_no_key_and_cost_no_search(by, actors, reader_account, world) -> None:
    answer = actors.reader.get(FIND, {"by": by, "text": "order-7 order-8"})
    response = Program(reader_account).get("/messages/find?by=key&text=order-7+order-8")

    assert answer.status_code == 200
    assert response.json()["items"] == []
    assert world.searched == []


def test_a_search_that_left_a_broker_out_does_not_say_that_there_is_nothing(
    actors, world, monkeypatch
) -> None:
    found = KeyFoundIn((), has_more=False, searched=6, problems=("broker-b isn't responding.",))
    monkeypatch.setattr(FakeBrowse, "by_key_in", lambda *_args: found)

    answer = actors.reader.get(FIND, {"by": "key", "text": "order-9"})

    assert "No matches so far." in answer.text
    assert "broker-b isn't responding." in html.unescape(answer.text)
    assert "contain no message" not in answer.text


def test_a_topic_beside_a_key_is_searched_alone(actors, world) -> None:
    answer = actors.reader.get(FIND, {"by": "any", "text": "Bills order-7"})

    assert answer["location"] == reverse("browse:message", args=["broker-a", 0, 0, "bills"])
    assert world.searched == []


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("orders broker-a:0 17", Location("orders", "broker-a:0", "17")),
        ("broker-a:0 \u00b7 1\u202f922 ORDERS", Location("orders", "broker-a:0", "1922")),
        ("broker-a:3:5", Location("", "broker-a:3", "5")),
        ("10.0.0.5:4000", None),
        ("orders 17", None),
        ("orders bills broker-a:0 17", None),
        ("order-7", None),
    ],
)
def test_a_location_is_recognised_however_pages_write_it(text, location) -> None:
    assert location_in(text, ["orders", "bills"]) == location


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("10.0.0.5", True), ("[fe80::1]:4000", True), ("shop@5", True), ("order-7", False)],
)
def test_a_client_is_recognised_by_its_address_or_id(text, is_one) -> None:
    assert is_client(text) is is_one
