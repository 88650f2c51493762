"""Promoting a slave from its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from console.gateway.answers import BrokerNode, Replication
from console.people.audit.models import Entry

if TYPE_CHECKING:
    from console.gateway.fakes.broker import FakeBroker

pytestmark = pytest.mark.django_db

SLAVE = BrokerNode("DefaultCluster", "broker-a", 1, "127.0.0.1:10931")
PAGE = ("brokers:detail", ["broker-a", 1])
PROMOTE = ("brokers:promote", ["broker-a", 1])


@pytest.fixture
def with_slave(brokers: FakeBroker) -> FakeBroker:
    brokers.slaves.append(SLAVE)
    return brokers


def test_only_administrators_see_the_button_and_only_for_a_slave(actors, with_slave) -> None:
    slave, master = reverse(PAGE[0], args=PAGE[1]), reverse(PAGE[0], args=["broker-a", 0])

    assert b"/promote/" in actors.admin.get(slave).content
    assert b"/promote/" not in actors.admin.get(master).content
    assert b"/promote/" not in actors.reader.get(slave).content
    refused = actors.reader.post(reverse(PROMOTE[0], args=PROMOTE[1]), {"name": SLAVE.address})
    assert refused.status_code == 403


def test_a_forced_promotion_is_applied_and_audited(actors, with_slave) -> None:
    answer = actors.admin.post(
        reverse(PROMOTE[0], args=PROMOTE[1]), {"name": SLAVE.address, "force": "on"}, follow=True
    )

    assert "is now the master of broker-a, in epoch 1" in answer.content.decode()
    entry = Entry.objects.get(action="broker.promote")
    assert (entry.subject, entry.outcome) == (f"broker-a:1 {SLAVE.address}", "done")
    assert entry.before == {"force": True}
    assert entry.after == {"epoch": 1, "start_offset": "4096", "broker_role": "ASYNC_MASTER"}


def test_the_broker_rejects_it_while_the_master_is_alive(actors, with_slave) -> None:
    answer = actors.admin.post(
        reverse(PROMOTE[0], args=PROMOTE[1]), {"name": SLAVE.address}, follow=True
    )

    assert "is alive" in answer.content.decode()
    assert Entry.objects.get(action="broker.promote").outcome == "failed"


def test_a_promotion_needs_the_typed_address(actors, with_slave) -> None:
    answer = actors.admin.post(
        reverse(PROMOTE[0], args=PROMOTE[1]), {"name": "127.0.0.1:1", "force": "on"}, follow=True
    )

    assert "Nothing was promoted" in answer.content.decode()
    assert not Entry.objects.filter(action="broker.promote").exists()


@pytest.mark.parametrize("broker_id", [0, 1])
def test_a_pairs_pages_show_both_and_the_slaves_delay(actors, with_slave, broker_id: int) -> None:
    page = actors.reader.get(reverse("brokers:detail", args=["broker-a", broker_id]))

    content = page.content.decode()
    assert SLAVE.address in content
    for fact in ("Behind by time", "Last contact", "Replication lag", "in sync"):
        assert fact in content
    # A slave has none.
    assert ("Master&#x27;s HA connections" in content) == (broker_id == 0)


def test_a_broker_without_slaves_shows_no_replication(actors, brokers) -> None:
    content = actors.reader.get(reverse("brokers:detail", args=["broker-a", 0])).content.decode()

    assert "Replication" not in content


def test_a_slave_that_does_not_follow_explains_why_on_its_page(actors, with_slave) -> None:
    with_slave.replication[SLAVE.address] = Replication(
        SLAVE, 0, is_master=False, max_offset=4096, reason="no connection to 127.0.0.1:1"
    )

    content = actors.reader.get(reverse(PAGE[0], args=PAGE[1])).content.decode()

    assert "no connection to 127.0.0.1:1" in content
    assert "The slave isn't connected to the master." in content
