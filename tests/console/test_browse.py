"""The pages of messages: those of a topic and a time, and one."""

from __future__ import annotations

import pytest
from django.urls import reverse

from console.browse.bodies import body_of
from console.gateway.moment import now_ms
from console.history.charts import GROUP_CHARTS, QUEUE_CHARTS, TOPIC_CHARTS
from console.history.metrics import QueuePlace
from console.history.pages import chart_row

pytestmark = pytest.mark.django_db

SEARCH = "/messages/"
MOMENT_MS = 1_700_000_000_000


def test_a_point_of_time_shows_the_messages_of_its_ten_seconds(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    brokers.put("Orders", 0, MOMENT_MS - 1, MOMENT_MS, MOMENT_MS + 10_000)
    brokers.put("Orders", 1, MOMENT_MS + 9_999)
    query = {"topic": "Orders", "from": MOMENT_MS, "to": MOMENT_MS + 10_000}

    answer = actors.reader.get(SEARCH, query)

    assert [(each.queue_id, each.queue_offset) for each in answer.context["rows"]] == [
        (0, 1),
        (1, 0),
    ]
    assert "2 messages" in answer.text
    of_queue = actors.reader.get(SEARCH, query | {"queue": "broker-a:1"})
    assert [each.queue_id for each in of_queue.context["rows"]] == [1]


def test_a_full_page_leads_on_and_each_message_is_on_one_of_them(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    brokers.put("Orders", 0, *(MOMENT_MS + number for number in range(250)))
    url = f"{SEARCH}?topic=Orders&from={MOMENT_MS}&to={MOMENT_MS + 1_000}"

    seen = set()
    more = "a page"
    for _page in range(4):
        answer = actors.reader.get(url)
        seen |= {each.queue_offset for each in answer.context["rows"]}
        more = answer.context["more"]
        url = f"{SEARCH}?{more}"
        if not more:
            break

    assert more == ""
    assert seen == set(range(250))


def test_many_messages_of_one_millisecond_do_not_hold_the_page(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    brokers.put("Orders", 0, *[MOMENT_MS] * 150, MOMENT_MS + 1)

    first = actors.reader.get(f"{SEARCH}?topic=Orders&from={MOMENT_MS}&to={MOMENT_MS + 9}")
    then = actors.reader.get(f"{SEARCH}?{first.context['more']}")

    assert [each.store_ms for each in then.context["rows"]] == [MOMENT_MS + 1]


def test_what_there_is_none_of_says_so(actors, brokers) -> None:
    brokers.add_topic("Orders")

    assert "Choose a topic" in actors.reader.get(SEARCH).text
    assert "No such topic" in actors.reader.get(SEARCH, {"topic": "<b>"}).text
    empty = actors.reader.get(SEARCH, {"topic": "Orders", "queue": "nonsense", "range": "x"})
    assert "No message in this time" in empty.text


def test_a_group_leads_to_the_topic_where_it_is_furthest_behind(actors, brokers) -> None:
    brokers.add_group("billing")
    for name, count in (("Orders", 1), ("Payments", 5)):
        brokers.add_topic(name, queue_nums=1)
        brokers.put(name, 0, *[MOMENT_MS] * count)
        brokers.offsets["billing", name, 0] = 0

    answer = actors.reader.get(
        reverse("browse:of-group", args=["billing"]), {"from": MOMENT_MS, "to": MOMENT_MS + 10}
    )

    assert answer["location"] == f"{SEARCH}?topic=Payments&from={MOMENT_MS}&to={MOMENT_MS + 10}"


def test_a_reader_sees_all_of_a_message_but_its_body(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    brokers.put("Orders", 0, now_ms())
    url = reverse("browse:message", args=["broker-a", 0, 0, "Orders"])

    admin, reader = actors.admin.get(url).text, actors.reader.get(url).text

    assert "&quot;order&quot;: 0" in admin
    assert "&quot;order&quot;" not in reader
    assert "Administrators see bodies" in reader
    assert "order-0" in reader
    gone = actors.reader.get(reverse("browse:message", args=["broker-a", 0, 7, "Orders"]))
    assert (gone.status_code, "no message at offset 7" in gone.text) == (404, True)


@pytest.mark.parametrize(
    ("data", "is_cut", "kind", "part"),
    [
        (b'{"n":12345678901234567890,"x":1.10}', False, "json", "1.10"),
        (b'{"n":1', False, "text", '{"n":1'),
        (b"[" * 100_000, False, "text", "[["),
        ("grüße".encode(), False, "text", "grüße"),
        ("ü".encode()[:1], True, "text", ""),
        (b"\x00\xff", False, "bytes", "00 ff"),
        (b"", False, "text", ""),
    ],
)
def test_a_body_is_shown_as_what_it_is(data, is_cut, kind, part) -> None:
    body = body_of(data, is_cut=is_cut)

    assert body.kind == kind
    assert part in body.text


def test_charts_of_topics_groups_and_queues_lead_to_messages() -> None:
    place = str(QueuePlace("billing", "Orders", "broker-a", 3))

    assert chart_row(TOPIC_CHARTS[0], "Orders", "")["messages_url"] == f"{SEARCH}?topic=Orders&"
    assert (
        chart_row(QUEUE_CHARTS[0], place, "")["messages_url"]
        == f"{SEARCH}?topic=Orders&queue=broker-a%3A3&"
    )
    assert chart_row(GROUP_CHARTS[0], "billing", "")["messages_url"].endswith("/of-group/billing/?")
