"""The page of transactions without an outcome: list them, and decide for a producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.gateway.access import gateway
from console.gateway.answers import MessageQueue
from console.gateway.outgoing import NewMessage
from console.people.audit.models import Entry

if TYPE_CHECKING:
    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors

pytestmark = pytest.mark.django_db

PAGE = "/brokers/b/broker-a/0/transactions/"


@pytest.fixture
def halves(brokers: FakeBroker) -> FakeBroker:
    brokers.add_topic("Orders")
    queue = MessageQueue("Orders", "broker-a", 0)
    for key in ("order-1", "order-2"):
        half = NewMessage(queue, b"{}", {"KEYS": key}, is_half=True)
        gateway().sending.send([half])
    return brokers


def stored(broker: FakeBroker) -> int:
    return sum(row.message_count for row in broker.status_of("Orders"))


def test_the_page_lists_undecided_transactions_with_their_producer(
    actors: Actors, halves: FakeBroker
) -> None:
    viewer = actors.reader.get(PAGE).content.decode()
    operator = actors.operator.get(PAGE).content.decode()

    assert all(key in viewer for key in ("order-1", "order-2", "TREBUCHET_CONSOLE"))
    assert ("Roll back" in viewer, "Roll back" in operator) == (False, True)


@pytest.mark.parametrize(("decision", "messages"), [("commit", 1), ("roll-back", 0)])
def test_a_decision_is_confirmed_then_applied_and_recorded(
    actors: Actors, halves: FakeBroker, decision: str, messages: int
) -> None:
    question = actors.operator.get(f"{PAGE}0/", {"do": decision})
    assert "be undone" in question.content.decode()
    assert stored(halves) == 0

    actors.operator.post(f"{PAGE}0/", {"do": decision})

    assert stored(halves) == messages
    entry = Entry.objects.get()
    assert (entry.action, entry.outcome) == (f"transaction.{decision}", "done")
    assert "order-1" not in actors.reader.get(PAGE).content.decode()


def test_a_check_without_a_producer_reports_it(actors: Actors, halves: FakeBroker) -> None:
    answer = actors.operator.post(f"{PAGE}0/", {"do": "check"}, follow=True)

    assert "no producer of the group is connected" in answer.content.decode()
    assert Entry.objects.get().outcome == "failed"


@pytest.mark.parametrize("address", [f"{PAGE}7/?do=commit", f"{PAGE}0/?do=forget"])
def test_a_missing_decision_or_a_decided_transaction_is_not_found(
    actors: Actors, halves: FakeBroker, address: str
) -> None:
    assert actors.operator.get(address).status_code == 404


def test_a_viewer_decides_nothing(actors: Actors, halves: FakeBroker) -> None:
    assert actors.reader.post(f"{PAGE}0/", {"do": "commit"}).status_code == 403
    assert stored(halves) == 0


def test_a_broker_that_does_not_report_it_is_mentioned(
    actors: Actors, halves: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway().sending, "undecided", lambda *_at: None)

    assert "Apache RocketMQ brokers don't support this request" in actors.reader.get(
        PAGE
    ).content.decode().replace("&#x27;", "'")
