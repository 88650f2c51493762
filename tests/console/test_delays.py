"""The page of delayed messages: pending messages of each level, their time and target."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from broker_core.message import names
from console.gateway.access import gateway
from console.gateway.answers import MessageQueue
from console.gateway.configuration import BrokerKey
from console.gateway.files import ConfigFile
from console.gateway.outgoing import NewMessage
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors

pytestmark = pytest.mark.django_db

SCHEDULE = names.RMQ_SYS_SCHEDULE_TOPIC
PAGE = "/brokers/b/broker-a/0/delays/"


@pytest.fixture
def waiting(brokers: FakeBroker) -> FakeBroker:
    """Two messages in level 2 (5 min), after a delivered one; level 4 is overdue."""
    brokers.keys["messageDelayLevel"] = BrokerKey("messageDelayLevel", "1s 5m 10m 30s")
    brokers.add_topic("Orders")
    brokers.add_topic(SCHEDULE, queue_nums=4)
    brokers.other_tables[ConfigFile.DELAYS] = {"2": 1}
    now = now_ms()
    for number in range(3):
        put(brokers, 1, f"order-{number}", now + number)
    put(brokers, 3, "late-1", now - 60_000)
    return brokers


def put(brokers: FakeBroker, queue_id: int, key: str, store_ms: int) -> None:
    kept = {names.PROPERTY_REAL_TOPIC: "Orders", names.PROPERTY_KEYS: key}
    brokers.put_message(SCHEDULE, queue_id, b"", store_ms, **kept)


def test_each_level_shows_how_many_wait_and_until_when(actors: Actors, waiting: FakeBroker) -> None:
    levels = {level.number: level for level in actors.reader.get(PAGE).context["levels"]}

    assert [(number, each.count, each.delay_ms) for number, each in levels.items()] == [
        (1, 0, 1_000),
        (2, 2, 300_000),
        (3, 0, 600_000),
        (4, 1, 30_000),
    ]
    second = levels[2]
    assert second.first is not None
    assert second.last is not None
    assert second.last.due_ms - second.first.due_ms == 1
    assert second.first.due_ms - second.first.stored.store_ms == 300_000
    assert (second.is_late, levels[4].is_late) == (False, True)


def test_a_level_lists_its_messages_with_their_topics_in_the_order_of_delivery(
    actors: Actors, waiting: FakeBroker
) -> None:
    answer = actors.reader.get(PAGE, {"level": "2"})
    later = actors.reader.get(PAGE, {"level": "2", "from": "2"})

    assert [(each.topic, each.stored.keys) for each in answer.context["waiting"]] == [
        ("Orders", "order-1"),
        ("Orders", "order-2"),
    ]
    assert [each.stored.keys for each in later.context["waiting"]] == ["order-2"]


def test_a_waiting_message_is_found_by_its_key_but_not_a_delivered_one(
    actors: Actors, waiting: FakeBroker
) -> None:
    found = actors.reader.get(PAGE, {"q": "order-2"})
    delivered = actors.reader.get(PAGE, {"q": "order-0"})

    assert [each.stored.queue_offset for each in found.context["waiting"]] == [2]
    assert "No waiting message has this key" in delivered.content.decode()


def test_a_level_missing_in_the_configuration_still_exists(
    actors: Actors, waiting: FakeBroker
) -> None:
    waiting.keys["messageDelayLevel"] = BrokerKey("messageDelayLevel", "1s 5s")

    levels = {level.number: level for level in actors.reader.get(PAGE).context["levels"]}

    assert (levels[4].count, levels[4].delay_ms) == (1, None)
    assert levels[4].first.due_ms - levels[4].first.stored.store_ms == 5_000


def test_a_broker_that_never_delayed_anything_has_empty_levels(
    actors: Actors, brokers: FakeBroker
) -> None:
    answer = actors.reader.get(PAGE)

    assert len(answer.context["levels"]) == 18
    assert answer.context["count"] == 0


def test_a_slave_links_to_its_master(actors: Actors, brokers: FakeBroker) -> None:
    brokers.slaves.append(replace(brokers.node, broker_id=1, address="127.0.0.1:10931"))

    answer = actors.reader.get("/brokers/b/broker-a/1/delays/")

    assert answer.status_code == 404
    assert "Open its master instead" in answer.content.decode()


def send_timers(brokers: FakeBroker, due_ms: int) -> None:
    queue = MessageQueue("Orders", "broker-a", 0)
    for number, key in enumerate(("third", "first", "second")):
        due = str(due_ms + (number or 3) * 1_000)
        carried = {names.PROPERTY_KEYS: key, names.PROPERTY_TIMER_DELIVER_MS: due}
        gateway().sending.send([NewMessage(queue, b"body", carried)])


def test_timer_messages_are_listed_soonest_first(actors: Actors, waiting: FakeBroker) -> None:
    due_ms = now_ms() + 60_000
    send_timers(waiting, due_ms)

    answer = actors.reader.get(PAGE)

    assert [each.keys for each in answer.context["timers_shown"]] == ["first", "second", "third"]
    assert answer.context["timers"].next_due_ms == due_ms + 1_000
    assert answer.context["count"] == 6
    assert "3 timer messages are pending" in answer.content.decode()


def test_a_timer_message_is_found_by_its_key(actors: Actors, waiting: FakeBroker) -> None:
    send_timers(waiting, now_ms() + 60_000)

    found = actors.reader.get(PAGE, {"q": "second"})
    nothing = actors.reader.get(PAGE, {"q": "fourth"})

    assert [each.keys for each in found.context["timers_shown"]] == ["second"]
    assert nothing.context["timers_shown"] == []
    assert "No timer message with this key is pending" in nothing.content.decode()


def test_an_empty_page_explains_how_timer_messages_get_there(
    actors: Actors, brokers: FakeBroker
) -> None:
    assert "No pending timer messages" in actors.reader.get(PAGE).content.decode()


def test_the_page_explains_that_a_rocketmq_broker_does_not_list_timer_messages(
    actors: Actors, brokers: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway().sending, "timers", lambda *_: None)

    page = actors.reader.get(PAGE).content.decode()

    assert "doesn't list its timer messages" in page
