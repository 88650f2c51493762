"""Charts on pages: points, tables, sparklines, marks; the text without a history."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from django.urls import reverse, reverse_lazy
from django.utils import translation

from console.gateway.errors import BrokerDownError, NameServerDownError
from console.gateway.fakes.broker import ADDRESS
from console.lib.moment import now_ms
from console.observe.alerts.models import Alert, Rule
from console.observe.history import metrics
from console.observe.history.access import history_store
from console.observe.history.chart_points import words
from console.observe.history.metrics import Subject
from console.observe.history.places import place_of
from console.observe.history.reading import Mark
from console.observe.history.status import STATUS, Status
from console.observe.history.store import Event
from console.observe.marks.setting import set_mark
from console.observe.overview.sparks import sparks_now
from console.people.audit.models import Entry
from tests.support.history_points import STEP_MS, keep, layout_of

if TYPE_CHECKING:
    from typing import Any

pytestmark = pytest.mark.django_db

ORDERS = Subject(metrics.TOPIC, "broker-a", "Orders")
BILLING = Subject(metrics.GROUP, "broker-a", "billing")
BROKER = Subject(metrics.BROKER, "broker-a", "0")


def chart(client: Any, kind: str, slug: str, name: str, query: str = "range=15m") -> Any:
    response = client.get(f"{reverse('history:points', args=[kind, slug, name])}?{query}")
    assert response.status_code == 200
    return response.json()


@pytest.fixture
def first_ms() -> int:
    """A time with ten samples in the last quarter of an hour."""
    return now_ms() // STEP_MS * STEP_MS - 20 * STEP_MS


def test_points_are_rates_and_gaps_are_null(actors, brokers, first_ms) -> None:
    keep(history_store(), first_ms, {(ORDERS, metrics.PUT): [50, None, 0]})

    answer = chart(actors.reader, "topic", "messages", "Orders")

    [received, peak] = answer["lines"]
    values = dict(zip(answer["times"], received["values"], strict=True))
    assert [values[first_ms + n * STEP_MS] for n in range(4)] == [5.0, None, 0.0, None]
    assert peak["label"] == "10 s peak"
    assert answer["unit"] == "msg/s"
    assert answer["stepMs"] == STEP_MS


def test_a_table_leaves_unknown_values_empty(actors, brokers, first_ms) -> None:
    keep(history_store(), first_ms, {(ORDERS, metrics.PUT): [50, None]})

    response = actors.reader.get(reverse("history:csv", args=["topic", "messages", "Orders"]))

    rows = list(csv.reader(io.StringIO(response.content.decode())))
    assert rows[0] == ["time_utc", "time_ms", "received (msg/s)", "peak (msg/s)"]
    by_time = {row[1]: row[2:] for row in rows[1:]}
    assert by_time[str(first_ms)] == ["5.0", "5.0"]
    assert by_time[str(first_ms + STEP_MS)] == ["", ""]
    assert response["content-disposition"] == 'attachment; filename="Orders-messages.csv"'


def test_a_name_creates_no_file_elsewhere(actors, brokers) -> None:
    response = actors.reader.get(reverse("history:csv", args=["group", "lag", '../%RETRY%"a b/x']))

    assert response["content-disposition"] == 'attachment; filename="..-RETRY-a-b-x-lag.csv"'


@pytest.mark.parametrize("place", [["topic", "nothing"], ["nothing", "messages"], ["x", "y"]])
def test_an_unknown_chart_is_not_found(place, actors, brokers) -> None:
    assert actors.reader.get(reverse("history:points", args=[*place, "T"])).status_code == 404


def test_a_broker_is_requested_by_name_and_number(actors, brokers, first_ms) -> None:
    other = Subject(metrics.BROKER, "broker-b", "0")
    rows = {(BROKER, metrics.PUT): [10], (other, metrics.PUT): [990]}
    keep(history_store(), first_ms, rows)

    answer = chart(actors.reader, "broker", "messages", "broker-a:0")

    values = dict(zip(answer["times"], answer["lines"][0]["values"], strict=True))
    assert values[first_ms] == 1.0


def test_data_replayed_by_a_slave_counts_as_received_once(actors, brokers, first_ms) -> None:
    slave = Subject(metrics.BROKER, "broker-a", "1")
    rows = {
        (BROKER, metrics.PUT): [500] * 20,
        (slave, metrics.PUT): [500] * 20,
        (BROKER, metrics.GOT): [10] * 20,
        (slave, metrics.GOT): [20] * 20,
    }
    keep(history_store(), first_ms, rows)

    answer = chart(actors.reader, "cluster", "messages", "all")

    at = answer["times"].index(first_ms)
    assert [line["values"][at] for line in answer["lines"]] == [50.0, 3.0]
    sparks = sparks_now(now_ms())
    assert sparks.put is not None
    assert sparks.got is not None
    assert max(each or 0 for each in sparks.put.values) == pytest.approx(50, rel=0.1)
    assert max(each or 0 for each in sparks.got.values) == pytest.approx(3, rel=0.1)


def test_a_slave_is_distinguished_from_its_master_by_name() -> None:
    assert place_of("broker", "broker-a", "0") == ("broker-a", "/brokers/b/broker-a/0/")
    assert place_of("broker", "broker-a", "1") == ("broker-a, slave 1", "/brokers/b/broker-a/1/")


def test_restarts_changes_and_rewound_offsets_are_marked(actors, brokers, first_ms) -> None:
    rows = {(BILLING, metrics.LAG): [5, 5], (BILLING, metrics.REWOUND): [0, 7]}
    keep(history_store(), first_ms, rows)
    history_store().add_event(Event(first_ms + 1, "restart", "broker-a"))
    history_store().add_event(Event(first_ms + 2, "restart", "broker-of-others"))
    for action, subject in (
        ("group.edit", "billing"),
        ("offset.reset", "billing · Orders"),
        ("group.edit", "billing-of-others"),
    ):
        Entry.objects.create(action=action, subject=subject, outcome=Entry.Outcome.DONE)
    Entry.objects.create(action="group.edit", subject="billing", outcome=Entry.Outcome.FAILED)

    marks = chart(actors.reader, "group", "lag", "billing")["marks"]

    assert [mark["what"] for mark in marks] == ["restart", "back", "change", "reset"]
    assert "broker-a" in marks[0]["text"]
    assert marks[1]["text"] == "Offsets rewound by 7 messages"


@pytest.mark.parametrize(
    ("language", "text"),
    [("en", "Offsets rewound by 1 message"), ("zh-hans", "位点回退了 1 条消息")],
)
def test_an_offset_rewound_by_one_is_rewound_by_one_message(language, text) -> None:
    with translation.override(language):
        assert words(Mark(0, "back", "1")) == text


def test_a_list_shows_the_last_hour_beside_the_figure(actors, brokers, first_ms) -> None:
    brokers.add_topic("Orders")
    brokers.add_topic("Quiet")
    rows = {(ORDERS, metrics.PUT): [100, 200]}
    keep(history_store(), (first_ms // 60_000) * 60_000, rows)

    content = actors.reader.get(reverse("topics:list")).content.decode()

    assert content.count('class="spark"') == 1
    assert "The collector has no data for the last hour." in content


def test_groups_show_their_lag_of_the_last_hour(actors, brokers, first_ms) -> None:
    brokers.add_group("billing")
    keep(history_store(), first_ms - 60_000, {(BILLING, metrics.LAG): [5, 6]})

    assert 'class="spark"' in actors.reader.get(reverse("groups:list")).content.decode()


@pytest.mark.parametrize(
    ("name", "arguments", "charts"),
    [
        ("topics:detail", ["Orders"], 3),
        ("groups:detail", ["billing"], 5),
        ("brokers:detail", ["broker-a", 0], 7),
    ],
)
def test_a_page_has_its_charts_and_its_range(name, arguments, charts, actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing", topic="Orders")

    response = actors.reader.get(f"{reverse(name, args=arguments)}?range=7d")

    content = response.content.decode()
    assert content.count("data-history=") == charts
    assert content.count("range=7d") >= charts
    assert "No history yet" in content


def test_a_working_collector_is_not_mentioned(actors, brokers) -> None:
    history_store().note(STATUS, msgspec.json.encode(Status(at_ms=now_ms(), process=None)))

    content = actors.reader.get(reverse("brokers:detail", args=["broker-a", 0])).content.decode()

    assert "No history yet" not in content
    assert "isn't sampling" not in content


def test_a_stopped_collector_is_named_with_its_age(actors, brokers) -> None:
    status = Status(at_ms=now_ms() - 600_000, process=None)
    history_store().note(STATUS, msgspec.json.encode(status))

    content = actors.reader.get(reverse("brokers:detail", args=["broker-a", 0])).content.decode()

    assert "The collector isn't sampling" in content
    assert f'data-age="{status.at_ms}"' in content


def test_a_missing_broker_keeps_its_history(actors, brokers) -> None:
    brokers.silent = BrokerDownError(ADDRESS, "connection refused")

    response = actors.reader.get(reverse("brokers:detail", args=["broker-a", 0]))

    assert response.status_code == 200
    assert "connection refused" in response.content.decode()
    assert "data-history=" in response.content.decode()


def test_without_a_name_server_a_broker_keeps_its_history(actors, brokers, first_ms) -> None:
    keep(history_store(), first_ms, {(BROKER, metrics.PUT): [10]})
    brokers.fails = NameServerDownError(["127.0.0.1:9876"], "connection refused")

    known = actors.reader.get(reverse("brokers:detail", args=["broker-a", 0]))
    other = actors.reader.get(reverse("brokers:detail", args=["broker-x", 0]))

    assert known.status_code == 200
    assert "connection refused" in known.content.decode()
    assert other.status_code == 503


def test_an_unregistered_broker_keeps_its_history(actors, brokers, first_ms) -> None:
    keep(history_store(), first_ms, {(BROKER, metrics.PUT): [10]})
    brokers.has_broker = False

    content = actors.reader.get(reverse("brokers:detail", args=["broker-a", 0])).content.decode()

    assert "No broker with this name is registered now" in content
    assert "data-history=" in content


def test_an_unknown_broker_is_not_found(actors, brokers) -> None:
    assert actors.reader.get(reverse("brokers:detail", args=["x", 0])).status_code == 404


def test_an_unreadable_history_is_reported_and_breaks_no_page(
    actors, brokers, settings, tmp_path
) -> None:
    brokers.add_topic("Orders")
    path = tmp_path / "broken.sqlite3"
    path.write_bytes(b"no database" * 1_000)
    settings.TREBUCHET_HISTORY_FILE = path
    history_store.cache_clear()

    answer = chart(actors.reader, "topic", "messages", "Orders")
    listed = actors.reader.get(reverse("topics:list"))
    shown = actors.reader.get(reverse("topics:detail", args=["Orders"]))

    assert "not a database" in answer["problem"]
    assert listed.status_code == shown.status_code == 200
    assert "The history can't be read" in shown.content.decode()


def test_a_chart_is_compared_with_the_day_before_on_one_scale(actors, brokers) -> None:
    first_ms = now_ms() // 60_000 * 60_000 - 300_000
    keep(history_store(), first_ms - 24 * 3_600_000, {(ORDERS, metrics.PUT): [10] * 6})
    keep(history_store(), first_ms, {(ORDERS, metrics.PUT): [50] * 6})

    plain = chart(actors.reader, "topic", "messages", "Orders")
    compared = chart(actors.reader, "topic", "messages", "Orders", "range=15m&earlier=day")

    place = compared["times"].index(first_ms)
    assert compared["lines"][0]["values"][place] == 5.0
    assert compared["earlier"][0][place] == 1.0
    assert compared["earlierBy"] == "1 day earlier"
    # Ten-second points are kept for a day; older data has one point a minute, and so has the rest.
    assert (plain["stepMs"], compared["stepMs"]) == (10_000, 60_000)
    assert (plain["earlier"], plain["earlierBy"]) == ([], "")


def test_compared_values_are_also_in_the_table(actors, brokers) -> None:
    first_ms = now_ms() // 60_000 * 60_000 - 300_000
    keep(history_store(), first_ms - 7 * 24 * 3_600_000, {(ORDERS, metrics.PUT): [10] * 6})
    url = reverse("history:csv", args=["topic", "messages", "Orders"])

    rows = list(csv.reader(io.StringIO(actors.reader.get(f"{url}?earlier=week").text)))

    assert rows[0][4:] == ["received_week_earlier (msg/s)", "peak_week_earlier (msg/s)"]
    by_time = {row[1]: row[2:] for row in rows[1:]}
    assert by_time[str(first_ms)] == ["", "", "1.0", "1.0"]


def test_a_page_keeps_its_comparison(actors, brokers) -> None:
    brokers.add_topic("Orders")
    url = reverse("topics:detail", args=["Orders"])

    compared = actors.reader.get(f"{url}?range=6h&earlier=day").text
    nonsense = actors.reader.get(f"{url}?range=6h&earlier=<b>").text

    assert compared.count("points.json?range=6h&amp;earlier=day") == 3
    assert compared.count("points.csv?range=6h&amp;earlier=day") == 3
    assert 'href="?range=24h&amp;earlier=day"' in compared
    assert 'href="?range=6h"' in compared
    assert "earlier=<b>" not in nonsense
    assert (
        nonsense.count("points.json?range=6h&quot;") + nonsense.count('points.json?range=6h"') == 3
    )


def test_joining_and_leaving_members_are_marked(actors, brokers, first_ms) -> None:
    members = [2, 2, None, 1, 1, 3]
    keep(history_store(), first_ms, {(BILLING, metrics.MEMBERS): members})

    marks = chart(actors.reader, "group", "members", "billing")["marks"]

    assert [(mark["what"], mark["atMs"]) for mark in marks] == [
        ("rebalance", first_ms + 3 * STEP_MS),
        ("rebalance", first_ms + 5 * STEP_MS),
    ]
    assert "2 \u2192 1" in marks[0]["text"]


def marks_of(client: Any, kind: str, slug: str, name: str) -> dict[str, str]:
    """Return the texts of a chart's marks by kind."""
    return {mark["what"]: mark["text"] for mark in chart(client, kind, slug, name)["marks"]}


def test_each_event_is_on_every_chart_it_may_explain(actors, brokers, first_ms) -> None:
    progress = Subject(metrics.PROGRESS, "broker-a", "billing@Orders")
    rows = {
        (BROKER, metrics.PUT): [1, 1],
        (ORDERS, metrics.PUT): [1, 1],
        (progress, metrics.LAG): [5, 5],
        (BILLING, metrics.LAG): [5, 5],
        (BILLING, metrics.MEMBERS): [3, 1],
        (BILLING, metrics.REWOUND): [0, 7],
    }
    keep(history_store(), first_ms, rows)
    for what in ("restart", "failover"):
        history_store().add_event(Event(first_ms + 1, what, "broker-a"))
    for action, subject in (
        ("offset.reset", "billing · Orders"),
        ("topic.update", "Orders"),
        ("group.update", "billing"),
        ("broker.update", "broker-a"),
    ):
        Entry.objects.create(action=action, subject=subject, outcome=Entry.Outcome.DONE)
    set_mark("shop 1.4.2", first_ms + 2, now_ms(), by="ada")
    rule = Rule.objects.create(name="all", source="verdict")
    for kind, name in ((metrics.BROKER, "0"), (metrics.PROGRESS, "billing@Orders")):
        Alert.objects.create(
            rule=rule,
            what="stopped",
            kind=kind,
            broker="broker-a",
            name=name,
            state="firing",
            severity="bad",
            began_ms=first_ms,
            fired_ms=first_ms + 3,
        )
    everywhere = {"restart", "failover", "deploy", "alert", "change"}
    of_group = {"back", "rebalance", "reset"}

    topic = marks_of(actors.reader, "topic", "messages", "Orders")
    group = marks_of(actors.reader, "group", "lag", "billing")
    queue = marks_of(actors.reader, "queue", "lag", "billing@Orders@broker-a:1")

    assert set(topic) == set(group) == set(queue) == everywhere | of_group
    assert topic["rebalance"].startswith("billing: ")
    assert set(marks_of(actors.reader, "broker", "messages", "broker-a:0")) == everywhere
    assert set(marks_of(actors.reader, "cluster", "messages", "all")) == everywhere


def test_a_queue_has_the_lag_of_its_group_there(actors, brokers, first_ms) -> None:
    progress = Subject(metrics.PROGRESS, "broker-a", "billing@Orders")
    ids = history_store().subject_ids({progress}, first_ms)
    parts = [metrics.Column(metrics.LAG.code, part) for part in (0, 1, metrics.WHOLE)]
    layout, order = layout_of((ids[progress], part) for part in parts)
    values = np.array([4, 5, 9], dtype=np.int64)[order]
    history_store().add_sample("broker-a:0", first_ms, STEP_MS, layout, values, b"{}")
    brokers.add_topic("Orders", queue_nums=2)
    brokers.add_group("billing", topic="Orders")
    brokers.offsets["billing", "Orders", 1] = 0

    answer = chart(actors.reader, "queue", "lag", "billing@Orders@broker-a:1")

    known = dict(zip(answer["times"], answer["lines"][0]["values"], strict=True))
    assert known[first_ms] == 5.0
    page = actors.reader.get(reverse("groups:queue", args=["billing", "broker-a", 1, "Orders"]))
    assert page.text.count("data-history=") == 2
    gone = actors.reader.get(reverse("groups:queue", args=["billing", "broker-a", 9, "Orders"]))
    assert gone.status_code == 404
    nothing = chart(actors.reader, "queue", "lag", "nonsense")
    assert set(nothing["lines"][0]["values"]) == {None}


@pytest.mark.parametrize(
    ("url", "title"),
    [
        (reverse_lazy("topics:detail", args=["Orders"]), "Orders"),
        (reverse_lazy("groups:detail", args=["billing"]), "billing"),
        (
            reverse_lazy("groups:queue", args=["billing", "broker-a", 1, "Orders"]),
            "Orders · broker-a:1",
        ),
    ],
)
def test_a_page_shows_stored_data_while_no_broker_answers(actors, brokers, url, title) -> None:
    progress = Subject(metrics.PROGRESS, "broker-a", metrics.pair("billing", "Orders"))
    rows = {(each, metrics.LAG): [1] for each in (ORDERS, BILLING, progress)}
    keep(history_store(), now_ms() - 60_000, rows)
    brokers.fails = NameServerDownError(["127.0.0.1:9876"], "refused")

    answer = actors.reader.get(url)

    assert answer.status_code == 503
    assert f"<h1>{title}</h1>" in answer.text
    assert "was recorded earlier" in answer.text
    assert "data-history=" in answer.text
    unknown = actors.reader.get(reverse("topics:detail", args=["of-nobody"]))
    assert "No response to show" in unknown.text
