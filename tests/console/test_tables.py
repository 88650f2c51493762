"""Tables: the address selects columns and order; invalid values are ignored."""

from __future__ import annotations

import re

import pytest
from django.test import RequestFactory
from django.urls import reverse

from console.lib.moment import now_ms
from console.lib.tables import Column, Table
from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.metrics import LAG, PROGRESS, PUT, TOPIC, Subject, pair
from tests.console.plans import applied
from tests.support.history_points import keep

COLUMNS = (
    Column("name", "Name", is_sorted=True),
    Column("lag", "Lag", "msg", is_number=True, is_sorted=True),
    Column("note", "Note", is_extra=True),
)
ROWS = [("b", 2), ("a", None), ("c", 7)]
KEYS = {"name": lambda row: row[0], "lag": lambda row: row[1]}


def table(query: str) -> Table:
    return Table(RequestFactory().get(f"/?{query}"), COLUMNS, sort="name")


def order(query: str) -> str:
    return "".join(name for name, _lag in table(query).sorted(ROWS, KEYS))


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", "abc"),
        ("sort=-name", "cba"),
        ("sort=lag", "bca"),
        ("sort=-lag", "cba"),
        ("sort=note", "abc"),
        ("sort=-", "abc"),
        ("sort=x%00", "abc"),
    ],
)
def test_the_address_orders_rows_and_unknown_values_come_last(query, names) -> None:
    assert order(query) == names


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["name", "lag"]),
        ("columns=note", ["name", "note"]),
        ("columns=lag&columns=note", ["name", "lag", "note"]),
        ("columns=nonsense", ["name", "lag"]),
    ],
)
def test_the_address_chooses_columns_and_the_first_always_stays(query, shown) -> None:
    assert [head.column.name for head in table(query).heads] == shown


def test_a_click_on_a_header_sorts_numbers_descending_first_and_then_toggles() -> None:
    def clicks(query: str) -> dict[str, tuple[str, str]]:
        return {each.column.name: (each.aria_sort, each.next_sort) for each in table(query).heads}

    assert clicks("")["lag"] == ("", "-lag")
    assert clicks("sort=-lag")["lag"] == ("descending", "lag")
    assert clicks("sort=lag")["lag"] == ("ascending", "-lag")
    assert clicks("")["name"] == ("ascending", "-name")


def test_choosing_columns_keeps_the_filter_and_leaves_the_page_number() -> None:
    assert table("q=x&kind=all&page=4&sort=lag").kept == [("q", "x"), ("kind", "all")]


def names_on(html: str) -> list[str]:
    return re.findall(r'class="table__name"[^>]*>\s*<a[^>]*>([^<]+)</a>', html)


@pytest.mark.django_db
def test_topics_are_ordered_over_all_pages_and_not_within_one(actors, brokers) -> None:
    for number in range(60):
        brokers.add_topic(f"Topic{number:02}")

    html = actors.reader.get(reverse("topics:list") + "?sort=-topic").content.decode()

    assert names_on(html)[0] == "Topic59"
    assert len(names_on(html)) == 50
    assert 'aria-sort="descending"' in html


@pytest.mark.django_db
def test_a_hidden_column_is_neither_in_the_header_nor_in_the_rows(actors, brokers) -> None:
    brokers.add_topic("Orders")
    url = reverse("topics:list")

    every = actors.reader.get(url).content.decode()
    some = actors.reader.get(url + "?columns=type&columns=brokers").content.decode()

    assert 'data-label="Received (msg/s)"' in every
    assert 'data-label="Received (msg/s)"' not in some
    assert len(re.findall(r"<th[ >]", some)) == len(re.findall(r"<td[ >]", some)) == 3
    assert 'type="hidden" name="columns" value="brokers"' in some


@pytest.mark.django_db
def test_topics_by_trend_come_from_the_history_with_unknown_ones_last(actors, brokers) -> None:
    brokers.add_topic("Busy")
    brokers.add_topic("Calm")
    brokers.add_topic("Unheard")
    busy, calm = (Subject(TOPIC, "broker-a", name) for name in ("Busy", "Calm"))
    keep(history_store(), now_ms() - 180_000, {(busy, PUT): [900] * 6, (calm, PUT): [30] * 6})

    html = actors.reader.get(reverse("topics:list") + "?sort=-trend").content.decode()

    assert names_on(html) == ["Busy", "Calm", "Unheard"]


def progress(group: str, topic: str, broker: str = "broker-a") -> Subject:
    return Subject(PROGRESS, broker, pair(group, topic))


@pytest.fixture
def lags(brokers) -> None:
    """Two topics that groups read, a third read an hour ago, and a fourth without a reader."""
    for name in ("Busy", "Calm", "Left", "Unread"):
        brokers.add_topic(name)
    now = now_ms()
    kept = {
        (progress("slow", "Busy"), LAG): [900] * 6,
        (progress("slow", "Busy", "broker-b"), LAG): [1_000] * 6,
        (progress("quick", "Busy"), LAG): [2] * 6,
        (progress("quick", "Calm"), LAG): [0] * 6,
    }
    keep(history_store(), now - 3_600_000, {(progress("gone", "Left"), LAG): [7_000] * 6})
    keep(history_store(), now - 180_000, kept)


@pytest.mark.django_db
def test_the_topics_list_has_the_largest_group_lag(actors, brokers, lags) -> None:
    url = reverse("topics:list") + "?sort=-lag&columns=groups&columns=lag"
    html = actors.reader.get(url).content.decode()

    assert names_on(html) == ["Busy", "Calm", "Left", "Unread"]
    assert '<a href="/groups/g/slow/" title="slow">1\u202f900</a>' in html
    assert '<a href="/groups/g/quick/" title="quick">0</a>' in html
    groups = re.findall(r'data-label="Groups"[^>]*>\s*(\d+|<span class="unknown")', html)
    assert groups == ["2", "1", '<span class="unknown"', '<span class="unknown"']


@pytest.mark.django_db
def test_an_unreadable_history_leaves_the_lag_of_topics_unknown(
    actors, brokers, lags, monkeypatch
) -> None:
    def unreadable(*_args: object) -> None:
        raise HistoryError("the disk fails")

    monkeypatch.setattr(type(history_store()), "read", unreadable)

    html = actors.reader.get(reverse("topics:list")).content.decode()

    assert names_on(html) == ["Busy", "Calm", "Left", "Unread"]
    assert "/groups/g/slow/" not in html


@pytest.mark.django_db
def test_groups_and_the_audit_log_are_ordered_by_their_address(actors, brokers) -> None:
    brokers.add_group("alpha")
    brokers.add_group("omega")
    for name in ("A-topic", "Z-topic"):
        data = {"topic": name, "broker_names": ["broker-a"], "write_queue_nums": 4}
        url = reverse("topics:create")
        applied(actors.admin, url, data | {"read_queue_nums": 4, "perm": 6})

    groups = actors.reader.get(reverse("groups:list") + "?sort=-group").content.decode()
    audit = actors.admin.get(reverse("audit:list") + "?sort=-subject").content.decode()

    assert names_on(groups) == ["omega", "alpha"]
    subjects = re.findall(r'data-label="Subject"><a [^>]+>([^<]+)<', audit)
    assert subjects == ["Z-topic", "A-topic"]
