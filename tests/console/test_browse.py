"""The message pages: the list for a topic and time, and a single message."""

from __future__ import annotations

import csv
import io
import json
from urllib.parse import urlencode

import pytest
from django.urls import reverse
from django.utils.html import escape

from console.gateway.answers import Member, Subscription, TopicQueue
from console.gateway.errors import BrokerDownError, RequestFailedError
from console.gateway.fakes.browse import FakeBrowse
from console.gateway.requests.records import BODY_SHOWN_MAX
from console.lib.bodies import DEPTH_MAX, NODES_MAX, body_of
from console.lib.moment import now_ms
from console.messages.browse import distribution, exporting, scanning
from console.observe.history.charts import GROUP_CHARTS, QUEUE_CHARTS, TOPIC_CHARTS
from console.observe.history.metrics import QueuePlace
from console.observe.history.pages import chart_row
from console.people.audit.models import Entry
from tests.console.api.conftest import Program

pytestmark = pytest.mark.django_db

SEARCH = "/messages/"
MOMENT_MS = 1_700_000_000_000
FIND = "/messages/find/"
KEYED = {"KEYS": "order-7 eu", "UNIQ_KEY": "0A01020300002A9F18B4AAC257A10001", "TAGS": "paid"}


def offsets(answer) -> list[tuple[int, int]]:
    return [(row.message.queue_id, row.message.queue_offset) for row in answer.context["rows"]]


def test_a_chart_point_shows_the_messages_of_its_ten_seconds(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    brokers.put("Orders", 0, MOMENT_MS - 1, MOMENT_MS, MOMENT_MS + 10_000)
    brokers.put("Orders", 1, MOMENT_MS + 9_999)
    query = {"topic": "Orders", "from": MOMENT_MS, "to": MOMENT_MS + 10_000}

    answer = actors.reader.get(SEARCH, query)

    assert offsets(answer) == [(1, 0), (0, 1)]
    assert "2 messages" in answer.text
    assert offsets(actors.reader.get(SEARCH, query | {"queue": "broker-a:1"})) == [(1, 0)]


@pytest.mark.parametrize("step_ms", [0, 1])
def test_a_full_page_links_to_the_next_and_each_message_is_on_one_page(
    step_ms, actors, brokers
) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    for queue_id in (0, 1):
        brokers.put("Orders", queue_id, *(MOMENT_MS + number * step_ms for number in range(125)))
    url = f"{SEARCH}?topic=Orders&from={MOMENT_MS}&to={MOMENT_MS + 1_000}"

    seen: list[tuple[int, int]] = []
    sizes = []
    while url:
        answer = actors.reader.get(url)
        seen += offsets(answer)
        sizes.append(len(offsets(answer)))
        is_done = answer.context["progress"].is_done
        url = "" if is_done else f"{SEARCH}?{answer.context['go_on']}"

    assert sizes == [100, 100, 50]
    assert sorted(seen) == [(queue_id, offset) for queue_id in (0, 1) for offset in range(125)]


def orders(brokers, count: int = 20) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    for number in range(count):
        body = b'{"id": %d, "lines": [{"sku": "A-%d"}, {"sku": "B"}]}' % (2**63 + number, number)
        brokers.put_message(
            "Orders",
            number % 2,
            body,
            MOMENT_MS + number,
            KEYS=f"order-{number} all",
            TAGS="paid" if number % 3 else "void",
            region=f"r{number % 4}",
        )


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ({"text": "a-7"}, [7]),
        ({"text": "B", "tag": "void"}, [18, 15, 12, 9, 6, 3, 0]),
        ({"path": "$.id", "value": str(2**63 + 5)}, [5]),
        ({"path": "lines[0].sku", "value": "A-11"}, [11]),
        ({"path": "$.lines[*].sku", "value": "B", "key": "ORDER-19"}, [19]),
        ({"path": "$['lines'][7]"}, []),
        ({"name": "region", "equals": "r3"}, [19, 15, 11, 7, 3]),
        ({"name": "region", "tag": "none"}, []),
        ({"client": "127.0.0.1:50001", "key": "order-2 "}, [2]),
        ({"client": "10.9."}, []),
    ],
)
def test_a_search_finds_message_content_newest_first(condition, found, actors, brokers) -> None:
    orders(brokers)
    span = {"topic": "Orders", "from": MOMENT_MS, "to": MOMENT_MS + 1_000}

    answer = actors.admin.get(SEARCH, span | condition)

    assert [int(row.message.keys.split()[0][6:]) for row in answer.context["rows"]] == found
    assert "Searched all 20 messages in this time range." in answer.text
    assert ("No matches so far." in answer.text) is not bool(found)


def test_a_search_stops_after_a_time_and_continues_there(actors, brokers, monkeypatch) -> None:
    orders(brokers)
    monkeypatch.setattr(scanning, "STEP_S", 0)
    monkeypatch.setattr(scanning, "READ_AT_ONCE", 6)
    query = {"topic": "Orders", "from": MOMENT_MS, "to": MOMENT_MS + 1_000, "tag": "void"}

    first = actors.reader.get(SEARCH, query)
    pages = [first]
    while pages[-1].context["progress"].is_continuing:
        url = f"{reverse('browse:scan')}?{pages[-1].context['next_step']}"
        assert f'hx-get="{escape(url)}"' in pages[-1].text
        pages.append(actors.reader.get(url, headers={"HX-Request": "true"}))

    assert first.context["progress"].searched == 6
    assert 'value="6"' in first.text
    assert [each.context["progress"].searched for each in pages] == [6, 12, 18, 20]
    found = [row.message.keys for each in pages for row in each.context["rows"]]
    assert found == [f"order-{number} all" for number in (18, 15, 12, 9, 6, 3, 0)]
    assert "hx-get" not in pages[-1].text


def test_a_search_pauses_once_its_page_is_full_or_its_limit_reached(
    actors, brokers, monkeypatch
) -> None:
    orders(brokers)
    query = {"topic": "Orders", "from": MOMENT_MS, "to": MOMENT_MS + 1_000, "key": "all"}
    monkeypatch.setattr(scanning, "FOUND_MAX", 8)
    full = actors.reader.get(SEARCH, query)
    rest = actors.reader.get(f"{SEARCH}?{full.context['go_on']}")

    assert (len(full.context["rows"]), full.context["progress"].is_continuing) == (8, False)
    assert len(rest.context["rows"]) == 8
    assert {*offsets(full)} & {*offsets(rest)} == set()

    monkeypatch.setattr(scanning, "GO_MESSAGES_MAX", 5)
    monkeypatch.setattr(scanning, "READ_AT_ONCE", 5)
    monkeypatch.setattr(scanning, "STEP_S", 0)
    bounded = actors.reader.get(SEARCH, query | {"key": "nothing"})
    assert "Searched 5 of" in bounded.text
    assert "hx-get" not in bounded.text.partition('class="scan"')[2]


def test_a_step_that_cannot_check_reports_it_and_can_be_retried(actors, brokers) -> None:
    orders(brokers)
    query = {"topic": "Orders", "from": MOMENT_MS, "to": MOMENT_MS + 1_000, "tag": "void"}
    url = reverse("browse:scan")
    brokers.fails = BrokerDownError("127.0.0.1:10911", "no connection")

    answer = actors.reader.get(
        url, query | {"before": f"{MOMENT_MS + 9}:4:broker-a:1", "total": "20"}
    )

    assert answer.status_code == 200
    assert "Search failed" in answer.text
    assert f"before={MOMENT_MS + 9}%3A4%3Abroker-a%3A1" in answer.text


def test_a_user_without_body_permission_cannot_search_bodies(actors, brokers) -> None:
    orders(brokers)
    query = {"topic": "Orders", "from": MOMENT_MS, "to": MOMENT_MS + 1_000}

    for condition in ({"text": "A-7"}, {"path": "$.id"}):
        for actor in (actors.reader, actors.operator):
            answer = actor.get(SEARCH, query | condition)
            assert "you need a role that can read bodies" in answer.text
            assert "rows" not in answer.context
    shown = actors.operator.get(SEARCH, query | {"field": "$.id"})
    assert str(2**63) not in shown.text


def test_a_field_of_json_is_a_column_with_every_digit(actors, brokers) -> None:
    orders(brokers, 2)
    query = {"topic": "Orders", "from": MOMENT_MS, "to": MOMENT_MS + 1_000}

    answer = actors.admin.get(SEARCH, query | {"field": ["$.id", "lines[*].sku", "$.none"]})

    values = [[value for _name, value in row.fields] for row in answer.context["rows"]]
    assert values == [[str(2**63 + 1), "A-1, B", ""], [str(2**63), "A-0, B", ""]]
    bad = actors.admin.get(SEARCH, query | {"field": "<b>[["})
    assert "a valid JSON path" in bad.text
    assert "<b>[[" not in bad.text


def test_unsearched_bodies_are_counted(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    for size in (10, BODY_SHOWN_MAX, BODY_SHOWN_MAX + 1):
        brokers.put_message("Orders", 0, b"x" * size, MOMENT_MS)
    query = {"topic": "Orders", "from": MOMENT_MS, "to": MOMENT_MS + 1_000, "text": "none"}

    assert "1 body was too long" in actors.admin.get(SEARCH, query).text


def test_an_empty_list_says_so(actors, brokers) -> None:
    brokers.add_topic("Orders")

    assert "Choose a topic" in actors.reader.get(SEARCH).text
    assert "Topic not found" in actors.reader.get(SEARCH, {"topic": "<b>"}).text
    empty = actors.reader.get(SEARCH, {"topic": "Orders", "range": "15m"})
    assert "No messages in this time range" in empty.text


def test_an_impossible_queue_shows_its_problem_and_no_messages(actors, brokers) -> None:
    orders(brokers)
    span = {"topic": "Orders", "from": MOMENT_MS, "to": MOMENT_MS + 1_000}

    for queue in ("nonsense", "broker-a:x"):
        answer = actors.admin.get(SEARCH, span | {"queue": queue})
        assert "Enter a queue as broker:number" in answer.text
        assert "rows" not in answer.context


def test_older_messages_of_a_short_range_stay_in_that_range(actors, brokers) -> None:
    placed(brokers)
    brokers.put_message("Orders", 0, b"{}", MOMENT_MS, **KEYED)
    narrow = {"from": MOMENT_MS - 1, "to": MOMENT_MS + 1}

    found = actors.reader.get(FIND, {"by": "key", "topic": "Orders", "text": "eu"} | narrow)

    assert offsets(found) == [(0, 1)]


def test_a_group_links_to_the_topic_with_the_largest_lag(actors, brokers) -> None:
    brokers.add_group("billing")
    for name, count in (("Orders", 1), ("Payments", 5)):
        brokers.add_topic(name, queue_nums=1)
        brokers.put(name, 0, *[MOMENT_MS] * count)
        brokers.offsets["billing", name, 0] = 0

    answer = actors.reader.get(
        reverse("browse:of-group", args=["billing"]), {"from": MOMENT_MS, "to": MOMENT_MS + 10}
    )

    assert answer["location"] == f"{SEARCH}?topic=Payments&from={MOMENT_MS}&to={MOMENT_MS + 10}"


def test_a_read_only_user_sees_all_of_a_message_except_its_body(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    brokers.put("Orders", 0, now_ms())
    url = reverse("browse:message", args=["broker-a", 0, 0, "Orders"])

    admin, reader = actors.admin.get(url).text, actors.reader.get(url).text

    assert "&quot;order&quot;: 0" in admin
    assert "&quot;order&quot;" not in reader
    assert "You don't have access to the body" in reader
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
def test_a_body_is_shown_by_its_type(data, is_cut, kind, part) -> None:
    body = body_of(data, is_cut=is_cut)

    assert body.kind == kind
    assert part in body.text


def test_charts_of_topics_groups_and_queues_link_to_messages() -> None:
    place = str(QueuePlace("billing", "Orders", "broker-a", 3))

    assert chart_row(TOPIC_CHARTS[0], "Orders", "")["messages_url"] == f"{SEARCH}?topic=Orders&"
    assert (
        chart_row(QUEUE_CHARTS[0], place, "")["messages_url"]
        == f"{SEARCH}?topic=Orders&queue=broker-a%3A3&"
    )
    assert chart_row(GROUP_CHARTS[0], "billing", "")["messages_url"].endswith("/of-group/billing/?")


def placed(brokers, **properties: str) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    brokers.put_message("Orders", 0, b"{}", now_ms() - 1_000, **(properties or KEYED))


@pytest.mark.parametrize("key", ["order-7", "eu", KEYED["UNIQ_KEY"]])
def test_each_key_of_a_message_finds_it_exactly(key, actors, brokers) -> None:
    placed(brokers)

    found = actors.reader.get(FIND, {"by": "key", "topic": "Orders", "text": key})
    part = actors.reader.get(FIND, {"by": "key", "topic": "Orders", "text": key[:-1]})

    assert offsets(found) == [(0, 0)]
    assert "contain no message with exactly this key" in part.text


def test_an_id_or_a_unique_key_leads_to_its_message_with_and_without_the_topic(
    actors, brokers
) -> None:
    placed(brokers)
    url = reverse("browse:message", args=["broker-a", 0, 0, "Orders"])
    offset_id = actors.reader.get(url).context["message"].offset_msg_id
    unique = {"by": "id", "text": KEYED["UNIQ_KEY"]}

    assert actors.reader.get(FIND, {"by": "id", "text": offset_id})["location"] == url
    assert actors.reader.get(FIND, unique | {"topic": "Orders"})["location"] == url
    assert actors.reader.get(FIND, unique)["location"] == url
    expired = f"{offset_id[:-4]}F000"
    nothing = "These topics contain no message with exactly this key or ID."
    assert nothing in actors.reader.get(FIND, {"by": "id", "text": expired}).text


JAVA_8_KEY = "0A0102031A2B18B4AAC257A100010002"
"""The ninth byte, from the hash of a class loader, has its top bit set."""
EARLY_KEY = "7F00000100002A9F18B4AAC257A10001"
"""Looks like an ID of the test's broker, at an offset far beyond the log."""


@pytest.mark.parametrize("unique_key", [JAVA_8_KEY, EARLY_KEY])
def test_a_unique_key_that_no_log_can_contain_is_found_by_the_index(
    unique_key, actors, reader_account, brokers, monkeypatch
) -> None:
    placed(brokers, UNIQ_KEY=unique_key)

    def refuse(_self: object, _place: object) -> None:
        raise RequestFailedError("127.0.0.1:10911", 1, "the request's offset is not a number")

    monkeypatch.setattr(FakeBrowse, "by_id", refuse)
    query = {"by": "id", "topic": "Orders", "text": unique_key}
    found = actors.reader.get(FIND, query)
    response = Program(reader_account).get(f"/messages/find?{urlencode(query)}")

    assert found["location"] == reverse("browse:message", args=["broker-a", 0, 0, "Orders"])
    assert [each["uniq_key"] for each in response.json()["items"]] == [unique_key]


def test_a_failed_check_does_not_claim_that_there_is_nothing(
    actors, reader_account, brokers
) -> None:
    placed(brokers)
    elsewhere = {"by": "id", "text": KEYED["UNIQ_KEY"][:-1] + "2"}
    stranger = actors.reader.get(FIND, elsewhere)
    response = Program(reader_account).get(f"/messages/find?{urlencode(elsewhere)}")
    brokers.fails = BrokerDownError("127.0.0.1:10911", "no connection")
    gone = actors.reader.get(FIND, {"by": "key", "topic": "Orders", "text": "order-7"})
    everywhere = actors.reader.get(FIND, {"by": "key", "text": "order-7"})

    assert (response.status_code, gone.status_code, everywhere.status_code) == (503, 503, 503)
    assert "no master with that address" in stranger.text
    assert "no master with that address" in response.json()["detail"]
    assert "Not found" not in stranger.text + gone.text + everywhere.text


def test_an_offset_leads_to_its_message_or_shows_the_queues_range(actors, brokers) -> None:
    placed(brokers)
    place = {"by": "place", "topic": "Orders", "queue": "broker-a:0", "offset": "0"}

    url = reverse("browse:message", args=["broker-a", 0, 0, "Orders"])
    assert actors.reader.get(FIND, place)["location"] == url
    beyond = actors.reader.get(FIND, place | {"offset": "9"})
    assert "Offset 9 is beyond the end of the queue." in beyond.text
    brokers.queues[TopicQueue("Orders", 0)].min_offset = 5
    assert "from offset 5 on" in actors.reader.get(FIND, place | {"offset": "2"}).text
    for bad in ({"queue": "broker-a:7"}, {"queue": "<b>"}, {"offset": "-1"}):
        assert "Queue not found" in actors.reader.get(FIND, place | bad).text


def reader_state(actors) -> tuple[str, str]:
    answer = actors.reader.get(reverse("browse:message", args=["broker-a", 0, 0, "Orders"]))
    (row,) = answer.context["readers"].rows
    return row.state, answer.text


def test_a_message_page_shows_each_groups_actions_and_their_evidence(actors, brokers) -> None:
    placed(brokers)
    brokers.add_group("billing", topic="Orders")
    assert reader_state(actors)[0] == "unknown"

    brokers.offsets["billing", "Orders", 0] = 0
    assert reader_state(actors)[0] == "waiting"

    brokers.offsets["billing", "Orders", 0] = 1
    assert reader_state(actors)[0] == "acknowledged"

    brokers.members["billing"] = [Member("c@1", "127.0.0.1:5", "JAVA", 407, ("broker-a",))]
    brokers.subscriptions["billing"] = [Subscription("Orders", "TAG", "new || void")]
    state, html = reader_state(actors)
    assert (state, "new || void" in html) == ("filtered", True)

    copy = {**KEYED, "RECONSUME_TIME": "2"}
    brokers.add_topic("%RETRY%billing", queue_nums=1)
    brokers.put_message("%RETRY%billing", 0, b"{}", now_ms(), **copy)
    assert reader_state(actors)[0] == "retried"

    brokers.offsets["billing", "%RETRY%billing", 0] = 1
    assert reader_state(actors)[0] == "acknowledged"

    brokers.add_topic("%DLQ%billing", queue_nums=1)
    brokers.put_message("%DLQ%billing", 0, b"{}", now_ms() + 1, **copy)
    assert reader_state(actors)[0] == "dead"


def test_an_offset_beyond_the_end_does_not_acknowledge_a_message(actors, brokers) -> None:
    placed(brokers)
    brokers.add_group("billing", topic="Orders")
    brokers.offsets["billing", "Orders", 0] = 50

    state, text = reader_state(actors)

    assert state == "unknown"
    assert "beyond the end of the queue" in text


OTHERS = (("region", "north"), ("note", ""))


def test_a_repeated_or_empty_property_is_shown_searched_and_exported(
    actors, admin_account, brokers
) -> None:
    placed(brokers, region="south", **KEYED)
    at = "Orders", 0, 0
    brokers.contents[at] = brokers.contents[at]._replace(other_properties=OTHERS)
    query = {"topic": "Orders", "range": "15m"}
    url = reverse("browse:message", args=["broker-a", 0, 0, "Orders"])

    page = actors.admin.get(url).text
    (item,) = Program(admin_account).get(f"/messages?{urlencode(query)}").json()["items"]
    exported = actors.admin.post(f"{reverse('browse:export', args=['jsonl'])}?{urlencode(query)}")

    assert [page.count(each) for each in ("south", "north", ">note<", ">empty<")] == [1] * 4
    assert item["other_properties"] == [list(each) for each in OTHERS]
    assert json.loads(exported.getvalue())["other_properties"] == [list(each) for each in OTHERS]
    for condition in ({"name": "region", "equals": "north"}, {"name": "note"}):
        assert offsets(actors.admin.get(SEARCH, query | condition)) == [(0, 0)]


def test_a_message_is_shown_even_if_its_consumers_are_unknown(actors, brokers, monkeypatch) -> None:
    placed(brokers)

    def silent(*_args: object) -> None:
        raise BrokerDownError("127.0.0.1:10911", "no connection")

    monkeypatch.setattr("console.messages.browse.views.readers_of", silent)
    answer = actors.admin.get(reverse("browse:message", args=["broker-a", 0, 0, "Orders"]))

    assert answer.status_code == 200
    assert "Search failed" in answer.text


def test_a_tree_keeps_every_digit_every_name_and_no_markup() -> None:
    text = '{"n":12345678901234567890,"x":1.10,"x":[true,null,"<b>\\u0007"],"<i>":{}}'

    body = body_of(text.encode(), is_cut=False, form="tree")

    assert body.kind == "tree"
    for part in ("12345678901234567890", "1.10", "&lt;b&gt;", "&lt;i&gt;", "null", "true"):
        assert part in body.text
    assert body.text.count('tree__name">x<') == 2
    assert "<b>" not in body.text


@pytest.mark.parametrize("text", ["[" * 900 + "]" * 900, "[" + "1," * 50_000 + "1]"])
def test_a_tree_of_any_size_is_bounded(text) -> None:
    body = body_of(text.encode(), is_cut=False, form="tree")

    assert body.kind in {"tree", "json"}
    assert body.kind == "json" or body.text.count("<li") <= NODES_MAX + DEPTH_MAX


def test_an_export_has_the_found_messages_and_is_recorded(actors, brokers) -> None:
    orders(brokers)
    brokers.put_message("Orders", 0, b"\xff\x00", MOMENT_MS + 100, KEYS="=1+1")
    query = f"topic=Orders&from={MOMENT_MS}&to={MOMENT_MS + 1_000}&name=region"
    url = reverse("browse:export", args=["jsonl"])

    found = actors.admin.post(f"{url}?{query}&equals=r3")
    rows = [json.loads(line) for line in found.getvalue().decode().splitlines()]

    assert [row["keys"] for row in rows] == [f"order-{n} all" for n in (19, 15, 11, 7, 3)]
    assert rows[0]["body"] == (
        f'{{"id": {2**63 + 19}, "lines": [{{"sku": "A-19"}}, {{"sku": "B"}}]}}'
    )
    assert rows[0]["properties"]["region"] == "r3"
    assert found["content-disposition"] == 'attachment; filename="messages.jsonl"'
    entry = Entry.objects.get()
    assert (entry.action, entry.subject) == ("message.export", "Orders")
    assert (entry.after["messages"], entry.after["is_whole"]) == (5, True)


def test_a_spreadsheet_export_has_no_formula_and_marks_values_that_are_not_text(
    actors, brokers
) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    brokers.put_message("Orders", 0, b"\xff\x00", MOMENT_MS, KEYS="=1+1")
    url = reverse("browse:export", args=["csv"])

    answer = actors.admin.post(f"{url}?topic=Orders&from={MOMENT_MS}&to={MOMENT_MS + 9}")
    (row,) = csv.DictReader(io.StringIO(answer.getvalue().decode(), newline=""))

    assert row["keys"] == "'=1+1"
    assert (row["body"], row["body_encoding"]) == ("/wA=", "base64")
    assert row["stored_ms"] == str(MOMENT_MS)


def test_a_partial_export_is_labelled_as_partial(actors, brokers, monkeypatch) -> None:
    orders(brokers)
    monkeypatch.setattr(exporting, "MESSAGES_MAX", 5)
    monkeypatch.setattr(exporting, "READ_AT_ONCE", 4)
    url = reverse("browse:export", args=["jsonl"])

    answer = actors.admin.post(f"{url}?topic=Orders&from={MOMENT_MS}&to={MOMENT_MS + 1_000}")

    assert len(answer.getvalue().splitlines()) == 5
    assert "messages.part.jsonl" in answer["content-disposition"]
    assert Entry.objects.get().after["is_whole"] is False


def spread(answer, number: int) -> dict[str, int]:
    return {bar.text: bar.times for bar in answer.context["found"].spreads[number].bars}


def test_a_distribution_counts_a_searchs_results(actors, brokers) -> None:
    orders(brokers)
    query = {"topic": "Orders", "from": MOMENT_MS, "to": MOMENT_MS + 1_000}
    url = reverse("browse:distribution")

    whole = actors.reader.get(url, query)
    void = actors.reader.get(url, query | {"tag": "void"})
    secret = actors.reader.get(url, query | {"text": "A-1"})

    assert spread(whole, 0) == {"broker-a:0": 10, "broker-a:1": 10}
    assert spread(whole, 1) == {"paid": 13, "void": 7}
    assert spread(whole, 2) == {"127.0.0.1": 20}
    assert spread(whole, 3) == {"128": 20}
    assert sum(spread(whole, 4).values()) == 20
    assert spread(void, 1) == {"void": 7}
    assert "matching messages." in void.text
    assert secret.status_code == 404


def test_a_partial_distribution_shows_the_total(actors, brokers, monkeypatch) -> None:
    orders(brokers)
    monkeypatch.setattr(distribution, "LOOKED_AT_MAX", 6)
    monkeypatch.setattr(distribution, "READ_AT_ONCE", 6)
    query = {"topic": "Orders", "from": MOMENT_MS, "to": MOMENT_MS + 1_000}

    answer = actors.reader.get(reverse("browse:distribution"), query)

    assert (answer.context["found"].looked_at, answer.context["found"].total) == (6, 20)
    assert "among the newest" in answer.text
