"""Lists as files: all rows of the filter in order, without additions."""

from __future__ import annotations

import csv
import io
import re
from html import unescape

import pytest
from django.urls import reverse

from console.gateway.fakes.groups import FakeGroups
from console.gateway.fakes.topics import FakeTopics
from console.lib.moment import now_ms
from console.observe.history.access import history_store
from console.observe.history.metrics import GROUP, LAG, LAG_AGE, MEMBERS, PROGRESS, Subject, pair
from tests.support.history_points import keep

pytestmark = pytest.mark.django_db


def rows_of(answer) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def test_the_file_has_all_filtered_topics_in_their_order(actors, brokers) -> None:
    for number in range(60):
        brokers.add_topic(f"Orders-{number:02d}", queue_nums=2)
    brokers.add_topic("Billing")
    lag = {(Subject(PROGRESS, "broker-a", pair("slow", "Orders-07")), LAG): [900] * 6}
    keep(history_store(), now_ms() - 180_000, lag)
    url = f"{reverse('topics:list')}?q=orders&sort=-topic&page=2"
    html = actors.reader.get(url).content.decode()
    (address,) = re.findall(r'href="(\?[^"]*as=csv)"', html)

    answer = actors.reader.get(reverse("topics:list") + unescape(address))

    rows = rows_of(answer)
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"] == 'attachment; filename="topics.csv"'
    assert [row["topic"] for row in rows] == [f"Orders-{n:02d}" for n in reversed(range(60))]
    known = next(row for row in rows if row["topic"] == "Orders-07")
    assert (known["write_queues"], known["groups"], known["lag"]) == ("2", "1", "900")
    assert known["furthest_behind"] == "slow"
    assert {row["lag"] for row in rows if row is not known} == {""}


def test_groups_have_the_sampled_values_and_unknown_ones_stay_empty(actors, brokers) -> None:
    brokers.add_topic("Orders")
    for name in ("billing", "silent"):
        brokers.add_group(name)
    billing = Subject(GROUP, "broker-a", "billing")
    figures = {(billing, LAG): [12] * 6, (billing, MEMBERS): [3] * 6}
    keep(history_store(), now_ms() - 180_000, figures | {(billing, LAG_AGE): [4_000] * 6})

    billed, silent = rows_of(actors.reader.get(reverse("groups:list"), {"as": "csv"}))

    assert (billed["group"], silent["group"]) == ("billing", "silent")
    assert [billed[name] for name in ("members", "lag", "oldest_unread_ms")] == ["3", "12", "4000"]
    assert [silent[name] for name in ("reading", "members", "lag")] == ["", "", ""]
    assert billed["retries_at_most"] == "16"


def test_a_name_cannot_become_a_spreadsheet_formula(actors, brokers) -> None:
    brokers.add_topic("-2+3")

    (row,) = rows_of(actors.reader.get(reverse("topics:list"), {"as": "csv"}))

    assert row["topic"] == "'-2+3"


def test_a_csv_download_queries_no_broker_per_row(actors, brokers, monkeypatch) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing")

    def refuse(*_args: object) -> None:
        raise AssertionError("a request for each row")

    for target, name in (
        (FakeTopics, "traffic"),
        (FakeGroups, "progress_of"),
        (FakeGroups, "connections_of"),
    ):
        monkeypatch.setattr(target, name, refuse)

    for page in ("topics:list", "groups:list"):
        assert actors.reader.get(reverse(page), {"as": "csv"}).status_code == 200


def test_a_stranger_gets_no_file(actors, brokers) -> None:
    answer = actors.stranger.get(reverse("topics:list"), {"as": "csv"})

    assert answer.status_code == 302
