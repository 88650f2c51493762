"""With several masters the reports page says which master's log they read."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.urls import reverse

from console.gateway.answers import BrokerNode
from console.gateway.errors import NameServerDownError

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def first(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    monkeypatch.setenv("TREBUCHET_LAKE_BROKER", "broker-a")


def page(actors) -> str:
    return " ".join(actors.reader.get(reverse("reports:list")).text.split())


def test_the_masters_missing_in_reports_are_named(actors, brokers) -> None:
    brokers.strangers = [BrokerNode("DefaultCluster", "broker-b", 0, "10.0.0.66:10911")]

    assert "cover only broker-a, not broker-b" in page(actors)


def test_without_a_name_for_the_first_all_masters_are_named(
    actors, brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TREBUCHET_LAKE_BROKER")
    brokers.strangers = [BrokerNode("DefaultCluster", "broker-b", 0, "10.0.0.66:10911")]

    assert "cover only one broker; there are broker-a, broker-b" in page(actors)


def test_one_master_with_its_slaves_needs_no_note(actors, brokers) -> None:
    brokers.slaves = [BrokerNode("DefaultCluster", "broker-a", 1, "10.0.0.66:10911")]

    assert "Reports on the message log cover" not in page(actors)


def test_without_a_name_server_nothing_is_reported_about_masters(actors, brokers) -> None:
    brokers.fails = NameServerDownError(["127.0.0.1:9876"], "refused")

    assert "Reports on the message log cover" not in page(actors)
