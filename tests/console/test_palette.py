"""The palette finds by parts of names, runs actions, and offers only permitted ones."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.urls import reverse

from console.gateway.errors import NameServerDownError
from console.lib.moment import now_ms
from console.people.preferences.models import Place

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(brokers):
    cache.clear()
    for name in ("Orders", "Reorders", "Billing"):
        brokers.add_topic(name)
    brokers.add_group("billing-service", online=True, topic="Orders")
    yield brokers
    cache.clear()


def found(client, words: str) -> dict[str, str]:
    answer = client.get(reverse("palette:entries"), {"q": words})
    return {entry["label"]: entry["url"] for entry in answer.json()["entries"]}


def test_a_name_is_found_by_its_parts_and_prefix_matches_come_first(actors, world) -> None:
    entries = found(actors.reader, "order")

    assert list(entries)[:2] == ["Orders", "Reorders"]
    assert entries["Orders"] == "/topics/t/Orders/"
    assert found(actors.reader, "broker-a")["broker-a 0"] == "/brokers/b/broker-a/0/"


@pytest.mark.parametrize(
    ("words", "label", "url"),
    [
        ("reset billing", "Reset offsets of billing-service…", "/offsets/?group=billing-service"),
        ("live orders", "Watch topic Orders live", "/live/?topic=Orders"),
        ("delete orders", "Delete topic Orders…", "/topics/t/Orders/delete/"),
        ("run report", "Run a report…", "/reports/#start-report"),
        ("audit", "Audit", "/audit/"),
    ],
)
def test_words_name_the_next_step(words, label, url, actors, world) -> None:
    assert found(actors.admin, words)[label] == url


@pytest.mark.parametrize("words", ["", "orders", "billing", "create", "audit", "delete orders"])
def test_a_read_only_user_sees_no_controls_that_change_things(words, actors, world) -> None:
    entries = " ".join(found(actors.reader, words))

    for verb in ("Delete", "Edit", "Reset", "Create", "Run", "Audit"):
        assert verb not in entries


def test_every_address_of_the_palette_works(actors, world) -> None:
    every = {
        url
        for words in ("", "orders", "billing", "create", "live", "offsets", "run", "broker")
        for url in found(actors.admin, words).values()
    }

    assert len(every) > 15
    for url in every:
        assert actors.admin.get(url.partition("#")[0]).status_code == 200, url


OFFSET_ID, IPV6_KEY = "7F00000100002A9F00000000000003E8", "0A" * 28


@pytest.mark.parametrize("message_id", [OFFSET_ID, OFFSET_ID.lower(), IPV6_KEY])
def test_a_message_id_takes_precedence_over_other_results(message_id, actors, world) -> None:
    entries = found(actors.reader, message_id)

    assert next(iter(entries.items())) == (
        f"Message with ID {message_id}",
        f"/messages/find/?by=id&text={message_id}",
    )


def test_an_id_beside_a_topic_is_looked_up_there(actors, world) -> None:
    entries = found(actors.reader, f"orders {IPV6_KEY}")

    assert next(iter(entries.values())) == f"/messages/find/?by=id&topic=Orders&text={IPV6_KEY}"


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ("Order-4711", "/messages/find/?by=any&text=Order-4711"),
        ("orders Order-4711", "/messages/find/?by=key&topic=Orders&text=Order-4711"),
        ("broker-a:0 17", "/messages/find/?by=any&text=broker-a%3A0+17"),
        ("a/b&c=d", "/messages/find/?by=any&text=a%2Fb%26c%3Dd"),
        ("o", None),
        ("orders", None),
        ("reset everything", None),
        ("orders reorders Order-4711", None),
    ],
)
def test_a_word_without_a_matching_topic_may_be_a_key(words, address, actors, world) -> None:
    addresses = list(found(actors.reader, words).values())

    keys = [each for each in addresses if each.startswith("/messages/find/")]
    assert keys == ([] if address is None else [address])
    assert not keys or addresses[-1] == address


def test_an_order_number_alone_leads_to_its_messages_in_every_topic(actors, world) -> None:
    for name, ago_ms in (("Orders", 1_000), ("Billing", 2_000)):
        world.put_message(name, 0, b"{}", now_ms() - ago_ms, KEYS="Order-4711")
    (address,) = found(actors.reader, "Order-4711").values()

    page = actors.reader.get(address)

    assert 'value="Order-4711"' in page.text
    assert [row.message.topic for row in page.context["rows"]] == ["Orders", "Billing"]


@pytest.mark.parametrize(
    "words", ["orders broker-a:0 17", "broker-a:0:17 Orders", "Orders broker-a:0 · 17"]
)
def test_a_topic_with_a_queue_and_offset_leads_to_that_message(words, actors, world) -> None:
    label, address = next(iter(found(actors.reader, words).items()))

    assert label == "Message at Orders broker-a:0 · 17"
    assert address == "/messages/find/?by=place&topic=Orders&queue=broker-a%3A0&offset=17"


def test_without_search_words_the_favourites_come_first(actors, admin_account, world) -> None:
    Place.objects.create(user=admin_account, kind="view", label="DLQ", address="/topics/?kind=dlq")

    assert list(found(actors.admin, ""))[:2] == ["DLQ", "Overview"]
    assert "DLQ" not in found(actors.reader, "")


def test_pages_are_found_while_no_broker_answers(actors, world) -> None:
    world.fails = NameServerDownError(["127.0.0.1:9876"], "refused")
    cache.clear()

    assert found(actors.reader, "topics")["Topics"] == "/topics/"


def test_a_strangers_input_is_not_answered(actors, world) -> None:
    assert actors.stranger.get(reverse("palette:entries"), {"q": "orders"}).status_code == 302
