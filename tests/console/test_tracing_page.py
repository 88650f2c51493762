"""The Live page: its address contains the filter."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from console.gateway.connections import Producer
from console.gateway.errors import BrokerDownError
from console.messages.tracing.views import line_of

if TYPE_CHECKING:
    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors


@pytest.mark.parametrize("name", ["topic", "group", "tag", "key", "client", "property", "took"])
def test_a_word_in_the_address_is_in_the_filter(
    actors: Actors, brokers: FakeBroker, name: str
) -> None:
    page = actors.reader.get(reverse("tracing:river"), {name: "shipping<b>"}).content.decode()

    field = page[page.index('id="river-line"') :].partition(">")[0]
    assert f'value="{name}:shipping&lt;b&gt;"' in field


@pytest.mark.parametrize(
    ("page", "query", "line"),
    [
        ("topics:detail", {}, "topic:billing"),
        ("groups:detail", {}, "group:billing"),
        ("groups:member", {"client": "billing@1"}, "client:billing@1"),
    ],
)
def test_the_link_from_a_page_is_filtered_by_its_subject(
    actors: Actors, brokers: FakeBroker, page: str, query: dict[str, str], line: str
) -> None:
    brokers.add_topic("billing")
    brokers.add_group("billing", online=True, topic="billing")
    content = actors.operator.get(reverse(page, args=["billing"]), query).content.decode()

    (link,) = set(re.findall(rf'href="({reverse("tracing:river")}\?[^"]+)"', content))
    there = actors.reader.get(html.unescape(link)).content.decode()

    field = there[there.index('id="river-line"') :].partition(">")[0]
    assert f'value="{line}"' in html.unescape(field)


def test_a_producer_is_linked_by_its_client(actors: Actors, brokers: FakeBroker) -> None:
    where = ("10.0.0.5@17", "10.0.0.5:4411", "JAVA", 407, 1_000, ("broker-a",))
    brokers.producers += [Producer("shop", *where)]

    content = actors.operator.get(reverse("clients:producers")).content.decode()

    (link,) = re.findall(rf'href="({reverse("tracing:river")}\?[^"]+)"', content)
    assert html.unescape(link).endswith("?client=10.0.0.5%4017")


def test_a_filter_is_shown_in_readable_form() -> None:
    assert line_of({"topic": "orders*", "key": "a b", "stage": "errors", "sample": ""}) == (
        'topic:orders* key:"a b" errors'
    )


def test_the_filter_offers_topics_and_groups(actors: Actors, brokers: FakeBroker) -> None:
    brokers.add_topic("orders")
    brokers.add_group("billing")

    offered = actors.reader.get(reverse("tracing:topics")).json()

    assert "orders" in offered["topics"]
    assert "billing" in offered["groups"]
    brokers.fails = BrokerDownError("127.0.0.1:10911", "connection refused")
    nothing: dict[str, list[str]] = {"topics": [], "groups": []}
    assert actors.reader.get(reverse("tracing:topics")).json() == nothing
