"""Owner and description of topics and groups, which the console stores separately from brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.broker.configs.models import Label
from console.people.audit.models import Entry

if TYPE_CHECKING:
    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors

pytestmark = pytest.mark.django_db

LABEL = {"owner": "team-pay", "description": "Orders of the shop", "message_type": "FIFO"}
TOPIC = "/topics/t/Orders/label/"


@pytest.fixture
def orders(brokers: FakeBroker) -> FakeBroker:
    brokers.add_topic("Orders")
    brokers.add_topic("Bills")
    brokers.add_topic("TBW102")
    brokers.add_group("billing")
    return brokers


def test_a_label_is_on_the_page_and_can_be_searched_in_the_list(
    actors: Actors, orders: FakeBroker
) -> None:
    actors.operator.post(TOPIC, LABEL)

    page = actors.reader.get("/topics/t/Orders/").content.decode()
    listed = actors.reader.get("/topics/", {"q": "team-p", "columns": "owner"})

    assert all(word in page for word in ("team-pay", "Orders of the shop", "Ordered"))
    assert [row.topic.name for row in listed.context["rows"]] == ["Orders"]
    assert "team-pay" in listed.content.decode()


def test_lists_are_ordered_by_owner_and_ownerless_entries_come_last(
    actors: Actors, orders: FakeBroker
) -> None:
    actors.operator.post(TOPIC, {"owner": "zoo"})
    orders.add_topic("Carts")
    Label.objects.create(kind="topic", name="Carts", owner="alpha")

    listed = actors.reader.get("/topics/", {"sort": "owner"})

    assert [row.topic.name for row in listed.context["rows"]] == ["Carts", "Orders", "Bills"]


def test_a_groups_label_has_no_message_kind(actors: Actors, orders: FakeBroker) -> None:
    actors.operator.post("/groups/g/billing/label/", LABEL)

    label = Label.objects.get()
    assert (label.kind, label.name, label.owner, label.message_type) == (
        "group",
        "billing",
        "team-pay",
        "",
    )
    assert "team-pay" in actors.reader.get("/groups/", {"q": "TEAM"}).content.decode()


def test_a_label_can_be_undone_until_someone_changes_it(actors: Actors, orders: FakeBroker) -> None:
    actors.operator.post(TOPIC, LABEL)
    first = Entry.objects.get()
    undo = f"/topics/label/undo/{first.pk}/"
    actors.operator.post(TOPIC, {**LABEL, "owner": "team-shop"})

    overtaken = actors.operator.post(undo)

    assert "Someone else changed this" in overtaken.content.decode()
    assert Label.objects.get().owner == "team-shop"
    second = Entry.objects.latest("pk")
    actors.operator.post(f"/topics/label/undo/{second.pk}/")
    assert Label.objects.get().owner == "team-pay"
    actors.operator.post(undo)
    assert not Label.objects.exists()


def test_a_user_without_permission_to_change_a_topic_may_not_label_it(
    actors: Actors, orders: FakeBroker
) -> None:
    assert actors.reader.post(TOPIC, LABEL).status_code == 403
    assert actors.operator.post("/topics/t/TBW102/label/", LABEL).status_code == 403
    assert actors.operator.post("/topics/t/Nowhere/label/", LABEL).status_code == 404
    assert not Label.objects.exists()


def test_a_label_that_is_too_long_is_rejected(actors: Actors, orders: FakeBroker) -> None:
    answer = actors.operator.post(TOPIC, {"owner": "x" * 121})

    assert "120" in answer.content.decode()
    assert not Label.objects.exists()
