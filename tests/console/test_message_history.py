"""The page of a message history, built from the brokers' records."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse

from console.gateway.answers import Subscription
from console.gateway.errors import BrokerDownError
from console.lib.moment import now_ms
from console.messages.family.client_traces import consumptions, record_of, records_of
from console.messages.family.clients import Comparison
from console.messages.family.relatives import Relation
from console.messages.family.steps import Source, Step
from console.messages.family.waterfall import positions, waterfall_of
from console.people.audit.models import Entry

if TYPE_CHECKING:
    from console.gateway.fakes.broker import FakeBroker
    from console.lib.stored import StoredMessage
    from tests.console.conftest import Actors

MOMENT_MS = 1_700_000_000_000
KEY = "0A01020300002A9F18B4AAC257A10001"
OTHER = "0A01020300002A9F18B4AAC257A10002"
TRACE = "RMQ_SYS_TRACE_TOPIC"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
WAITING = "SCHEDULE_TOPIC_XXXX"


def line(*fields: object) -> str:
    return "\x01".join(map(str, fields))


def pub(*tail: object, message_id: str = KEY, at_ms: object = MOMENT_MS) -> str:
    head = (at_ms, "cn", "shop", "orders", message_id, "paid", "k", "10.0.0.1:10911", 12, 4, 0)
    return line("Pub", *head, *tail)


@pytest.mark.parametrize(
    ("tail", "known"),
    [
        ((), ("", None, "")),
        (("true",), ("", True, "")),
        (("ID", "false"), ("ID", False, "")),
        (("ID", "true", "10.0.0.9"), ("ID", True, "10.0.0.9")),
        (("ID", "true", "10.0.0.9", "later"), ("ID", True, "10.0.0.9")),
    ],
)
def test_a_send_is_read_at_every_length(tail, known) -> None:
    record = record_of(pub(*tail))

    assert (record.offset_msg_id, record.is_success, record.client_host) == known
    assert (record.at_ms, record.cost_ms, record.message_type) == (MOMENT_MS, 4, "normal")


@pytest.mark.parametrize(
    ("tail", "known"),
    [
        ((), ("", None, "")),
        (("k",), ("", None, "")),
        (("k", 4), ("FAILED", None, "")),
        (("k", 2, 17), ("EXCEPTION", 17, "")),
        (("k", 9, 17, "billing"), ("9", 17, "billing")),
    ],
)
def test_the_end_of_a_consumption_is_read_at_every_length(tail, known) -> None:
    record = record_of(line("SubAfter", "request", KEY, 7, "true", *tail))

    assert (record.return_type, record.at_ms, record.group) == known
    assert (record.cost_ms, record.is_success) == (7, True)


def test_all_five_kinds_are_read_and_an_unknown_record_is_kept_unchanged() -> None:
    strange = [
        "Elsewhere\x01x",
        "Pub\x01too short",
        pub("ID", at_ms="soon"),
        "SubAfter\x01\x01\x01",
    ]
    end = line(
        "EndTransaction", 5, "cn", "g", "T", KEY, "", "", "h", 2, "tx", "COMMIT_MESSAGE", "true"
    )
    text = "\x02".join(
        [
            pub(),
            line("SubBefore", 1, "null", "g", "r", KEY, 3),
            line("SubAfter", "r", KEY, 1, "true"),
            end,
            line("Recall", 5, "cn", "g", "T", KEY, "true"),
            *strange,
            "",
        ]
    )

    records = records_of(text.encode())

    kinds = ["Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"]
    assert [each.kind for each in records] == [*kinds, *[""] * len(strange)]
    assert [each.raw for each in records[5:]] == strange
    assert (records[1].region, records[1].retry_times) == ("", 3)
    assert (records[3].transaction_state, records[3].is_from_check) == ("COMMIT_MESSAGE", True)
    assert [(one and one.kind, two and two.kind) for one, two in consumptions(records)] == [
        ("SubBefore", "SubAfter")
    ]


def test_the_axis_shows_a_millisecond_beside_an_hour() -> None:
    at = positions([0, 1_000, 3_600_000_000])

    assert 3 < at[1_000] < at[3_600_000_000] == 96
    assert positions([]) == {}
    assert positions([5]) == {5: 0}


def test_a_step_without_a_time_follows_its_predecessor_and_has_no_bar() -> None:
    steps = [
        Step(stage="late", label="late", begin_us=9_000),
        Step(stage="unknown", label="unknown", after_us=2_000),
        Step(stage="early", label="early", begin_us=2_000, end_us=4_500),
    ]
    drawn = waterfall_of([replace(steps[2]), steps[1], steps[0]])

    assert [each.step.stage for each in drawn.lines] == ["early", "unknown", "late"]
    assert [each.label for each in drawn.lines] == ["2.5 ms", "", "at 7 ms"]
    assert drawn.lines[1].x is None
    assert [tick.label for tick in drawn.ticks] == ["0", "2.5 ms", "7 ms"]


def test_the_label_of_a_bar_that_fills_the_axis_is_on_it() -> None:
    [whole, late] = waterfall_of(
        [
            Step(stage="sent", label="sent", begin_us=0, end_us=9_000),
            Step(stage="stored", label="stored", begin_us=9_000),
        ]
    ).lines

    assert (whole.label_x, whole.label_anchor) == ("95.40%", "end")
    assert (late.label_x, late.label_anchor) == ("95.40%", "end")


@pytest.mark.parametrize(
    ("high_ms", "ours_ms", "apart_ms"),
    [(104, 99, 1), (104, 100, 0), (104, 104, 0), (104, 110, -6), (None, 99, 0), (None, 107, -7)],
)
def test_clock_differences_are_derived_from_contradictions(high_ms, ours_ms, apart_ms) -> None:
    assert Comparison("sent", "shop", 100, high_ms, ours_ms).apart_ms == apart_ms


def a_family(brokers: FakeBroker) -> None:
    """A message consumed by one group, and returned twice by another until it was a dead letter."""
    brokers.add_topic("orders", queue_nums=1)
    brokers.add_group("billing")
    for group in ("billing", "fraud-check"):
        brokers.offsets[group, "orders", 0] = 1
    for topic in (WAITING, "%RETRY%billing", "%DLQ%billing", TRACE):
        brokers.add_topic(topic, queue_nums=1)
    brokers.put_message("orders", 0, b"{}", MOMENT_MS, KEYS="order-7", UNIQ_KEY=KEY, TAGS="paid")
    brokers.put_message("orders", 0, b"{}", MOMENT_MS, KEYS="order-7", UNIQ_KEY=OTHER)
    retry = {"UNIQ_KEY": KEY, "RETRY_TOPIC": "orders", "RECONSUME_TIME": "1", "KEYS": "order-7"}
    waits = {"REAL_TOPIC": "%RETRY%billing", "DELAY": "3"}
    brokers.put_message(WAITING, 0, b"{}", MOMENT_MS + 40, **retry, **waits)
    brokers.put_message("%RETRY%billing", 0, b"{}", MOMENT_MS + 10_040, **retry)
    brokers.put_message(
        "%RETRY%billing", 0, b"{}", MOMENT_MS + 9_000, **(retry | {"UNIQ_KEY": OTHER})
    )
    dead = retry | {"RECONSUME_TIME": "2"}
    brokers.put_message("%DLQ%billing", 0, b"{}", MOMENT_MS + 10_090, **dead)
    again = {"UNIQ_KEY": KEY, "TREBUCHET_REPLAY": "4"}
    brokers.put_message("orders", 0, b"{}", MOMENT_MS + 90_000, **again)
    body = "\x02".join(
        [
            pub("ID", "true", "10.0.0.9", at_ms=MOMENT_MS - 2),
            pub("ID", "true", message_id=OTHER),
            line("SubBefore", MOMENT_MS + 3, "cn", "billing", "r", KEY, 0, "order-7"),
            line("SubAfter", "r", KEY, 30, "false", "order-7", 4, MOMENT_MS + 33, "billing"),
        ]
    )
    brokers.put_message(TRACE, 0, body.encode(), MOMENT_MS + 50, KEYS=f"{KEY} order-7 {OTHER}")


def opened(actors: Actors, topic: str, offset: int = 0):
    return actors.reader.get(reverse("family:message", args=["broker-a", 0, offset, topic]))


def stages(answer) -> list[tuple[str, str]]:
    drawn = answer.context["waterfall"].lines
    return [(each.step.stage, str(each.step.certainty)) for each in drawn]


@pytest.mark.django_db
def test_a_message_history_has_every_stage_with_its_certainty(
    actors: Actors, brokers: FakeBroker
) -> None:
    a_family(brokers)

    answer = opened(actors, "orders")

    assert stages(answer) == [
        ("client_send", "exact"),
        ("sent", "inferred"),
        ("stored", "exact"),
        ("dispatched", "inferred"),
        ("flushed", "unknown"),
        ("replicated", "unknown"),
        ("acknowledged", "inferred"),
        ("client_consume", "exact"),
        ("given_back", "exact"),
        ("deferred", "exact"),
        ("retry", "exact"),
        ("dead", "exact"),
        ("replayed", "exact"),
    ]
    assert "1 min 30 s in total" in answer.text
    assert "it failed (FAILED)" in answer.text
    assert "The clocks agree" in answer.text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sql", "state", "words"),
    [
        ("TAGS = 'paid'", "acknowledged", "is past this message, and no retry copy exists"),
        ("TAGS = 'due'", "filtered", "which this message&#x27;s properties don&#x27;t match"),
        ("colour IS NOT NULL", "filtered", "which this message&#x27;s properties don&#x27;t match"),
        ("colour =", "unknown", "matched it is unknown"),
    ],
)
def test_an_sql_expression_is_evaluated_for_a_message(
    sql: str, state: str, words: str, actors: Actors, brokers: FakeBroker
) -> None:
    a_family(brokers)
    brokers.subscriptions["fraud-check"] = [Subscription("orders", "SQL92", sql)]

    answer = opened(actors, "orders")

    assert state in {stage for stage, _certainty in stages(answer)}
    assert words in answer.text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("topic", "offset"),
    [("%RETRY%billing", 0), ("%DLQ%billing", 0), (WAITING, 0), ("orders", 2)],
)
def test_each_member_of_a_message_history_leads_to_the_same(topic, offset, actors, brokers) -> None:
    a_family(brokers)
    drawn = {each.step.stage for each in opened(actors, topic, offset).context["waterfall"].lines}

    assert {"stored", "deferred", "retry", "dead", "client_send"} <= drawn


@pytest.mark.django_db
def test_a_half_message_is_found_by_its_key_under_its_target_topic(
    actors: Actors, brokers: FakeBroker
) -> None:
    for topic in ("orders", HALF):
        brokers.add_topic(topic, queue_nums=1)
    waits = {"UNIQ_KEY": KEY, "KEYS": "order-7", "REAL_TOPIC": "orders", "PGROUP": "shop"}
    brokers.put_message(HALF, 0, b"{}", now_ms() - 60_000, **waits)
    address = reverse("family:message", args=["broker-a", 0, 0, HALF])

    by_id = actors.reader.get(reverse("browse:find"), {"topic": "orders", "text": KEY})
    by_key = {"by": "key", "topic": "orders", "text": "order-7"}
    listed = actors.reader.get(reverse("browse:find"), by_key)
    elsewhere = actors.reader.get(reverse("browse:find"), by_key | {"topic": HALF})
    answer = actors.reader.get(address)

    assert by_id["Location"] == address
    assert address in listed.text
    assert "withheld" in listed.text
    assert address in elsewhere.text
    assert [stage for stage, _certainty in stages(answer)][:2] == ["sent", "withheld"]
    # Like RocketMQ's, this broker doesn't record the outcome.
    assert ("unknown", "unknown") in stages(answer)
    message = reverse("browse:message", args=["broker-a", 0, 0, HALF])
    assert actors.reader.get(message)["Location"] == address


@pytest.mark.django_db
@pytest.mark.parametrize(
    "origin", ["0A0102031A2B18B4AAC257A100010002", "0A01020300002A9F18B4AAC257A10001"]
)
def test_a_copy_that_names_a_unique_key_leads_to_the_original(
    origin: str, actors: Actors, brokers: FakeBroker
) -> None:
    for topic in ("orders", "%RETRY%billing"):
        brokers.add_topic(topic, queue_nums=1)
    brokers.put_message("orders", 0, b"{}", now_ms() - 60_000, UNIQ_KEY=origin)
    copy = {"UNIQ_KEY": origin, "ORIGIN_MESSAGE_ID": origin, "RETRY_TOPIC": "orders"}
    brokers.put_message("%RETRY%billing", 0, b"{}", now_ms(), **copy)

    answer = opened(actors, "%RETRY%billing")

    assert answer.context["message"].topic == "orders"
    assert answer.context["relatives"].problems == []


@pytest.mark.django_db
def test_a_failed_lookup_is_reported(actors: Actors, brokers: FakeBroker) -> None:
    brokers.add_topic("orders", queue_nums=1)
    brokers.put_message("orders", 0, b"{}", MOMENT_MS)

    assert "so the index can" in opened(actors, "orders").text
    assert opened(actors, "orders", 1).status_code == 404
    brokers.fails = BrokerDownError("127.0.0.1:10911", "connection refused")
    assert opened(actors, "orders").status_code == 503


def noted(stage: str, at_us: int, **more: object) -> dict[str, object]:
    return {
        "stage": stage,
        "timeMs": str(MOMENT_MS + at_us // 1_000),
        "atUs": str(5_000_000 + at_us),
        "topic": "orders",
        "queueId": 0,
        "queueOffset": "0",
        "uniqKey": KEY,
        **more,
    }


@pytest.mark.django_db
def test_the_recorders_notes_fill_in_data_missing_in_the_log(
    actors: Actors, brokers: FakeBroker
) -> None:
    a_family(brokers)
    steps = {"received": 0, "validated": 31, "appended": 52, "dispatched": 60}
    brokers.recorded = [
        noted("stored", 100, steps=steps, producerGroup="shop", client="10.0.0.5:1"),
        noted("flushed", 1_500, latencyUs=1_400, together=31),
        noted("delivered", 2_100, latencyUs=2_000, group="fraud-check", clientId="off0"),
        noted("acknowledged", 4_000, latencyUs=1_900, group="fraud-check"),
        noted("delivered", 4_500, latencyUs=4_400, group="TOOLS_CONSUMER"),
        noted("teleported", 5_000),
    ]

    page = opened(actors, "orders")
    drawn = {each.step.stage: each for each in page.context["waterfall"].lines}

    assert "TOOLS_CONSUMER" not in page.content.decode()
    assert drawn["flushed"].label == "1.4 ms"
    assert drawn["flushed"].step.actor == "group commit of 31"
    assert drawn["delivered"].step.actor == "fraud-check off0"
    assert drawn["received"].step.actor == "shop 10.0.0.5:1"
    assert drawn["validated"].label == "31 µs"
    assert (drawn["acknowledged"].step.begin_us or 0) - MOMENT_MS * 1_000 == 2_100
    assert drawn["teleported"].step.label == "teleported"
    assert drawn["replicated"].x is None
    brokers.recorder_fails = BrokerDownError("127.0.0.1:10911", "it has no recorder")
    assert "flushed" in {stage for stage, _ in stages(opened(actors, "orders"))}


@pytest.mark.django_db
def test_a_stage_in_recorder_and_log_is_one_row_with_the_best_of_each(
    actors: Actors, brokers: FakeBroker
) -> None:
    a_family(brokers)
    relatives = opened(actors, "orders").context["relatives"]
    [retry] = relatives.of(Relation.RETRY, "billing")
    [dead] = relatives.of(Relation.DEAD, "billing")

    def place(message: StoredMessage) -> dict[str, str]:
        return {"topic": message.topic, "commitLogOffset": str(message.commit_log_offset)}

    brokers.recorded = [
        noted("stored", 1_000, commitLogOffset=str(relatives.root.commit_log_offset)),
        noted("given_back", 40_300, group="billing", client="10.0.0.9:1"),
        noted("given_back", 40_300, group="fraud-check", client="10.0.0.9:2"),
        noted("retried", 10_040_700, group="billing", **place(retry)),
        noted("retried", 10_040_800, **(place(retry) | {"commitLogOffset": "77"})),
        noted("dead", 10_090_200, group="billing", **place(dead)),
    ]

    drawn = [each.step for each in opened(actors, "orders").context["waterfall"].lines]

    found = Counter(each.stage for each in drawn)
    assert (found["stored"], found["retry"], found["dead"]) == (1, 1, 1)
    # Of another group, and of another record.
    assert (found["given_back"], found["retried"]) == (2, 1)
    by_stage = {each.stage: each for each in drawn if not each.actor.startswith("fraud-check")}
    begins = {stage: (each.begin_us or 0) - MOMENT_MS * 1_000 for stage, each in by_stage.items()}
    assert begins["stored"] == 1_000
    assert begins["given_back"] == 40_300
    assert begins["retry"] == 10_040_700
    assert begins["dead"] == 10_090_200
    for stage in ("stored", "retry", "dead"):
        step = by_stage[stage]
        assert step.url
        assert step.source is Source.RECORDER
        assert ("Topic", "orders" if stage == "stored" else step.facts[0][1]) == step.facts[0]
    assert ("client", "10.0.0.9:1") in by_stage["given_back"].facts


@pytest.mark.django_db
def test_a_copys_flush_does_not_count_for_the_message(actors: Actors, brokers: FakeBroker) -> None:
    a_family(brokers)
    steps = {"received": 0, "validated": 31, "appended": 52, "dispatched": 60}
    copy = {"topic": "%RETRY%billing", "group": "billing", "commitLogOffset": "77"}
    brokers.recorded = [
        noted("dead", 10_090_200, steps=steps, **copy),
        noted("flushed", 10_091_000, latencyUs=800, together=1, **copy),
    ]

    drawn = [each.step for each in opened(actors, "orders").context["waterfall"].lines]

    for stage in ("dispatched", "flushed"):
        own, of_copy = (each for each in drawn if each.stage == stage)
        assert (own.begin_us, own.source is Source.RECORDER) == (None, False)
        assert (of_copy.record, of_copy.source) == ("broker-a 77", Source.RECORDER)


@pytest.mark.django_db
def test_a_retry_shows_its_number_and_the_maximum(actors: Actors, brokers: FakeBroker) -> None:
    a_family(brokers)

    def labels() -> set[str]:
        return {each.step.label for each in opened(actors, "orders").context["waterfall"].lines}

    assert "retry 1 of 16" in labels()
    del brokers.group_configs["billing"]
    assert "retry 1" in labels()


@pytest.mark.django_db
def test_an_export_continues_the_messages_own_trace(actors: Actors, brokers: FakeBroker) -> None:
    a_family(brokers)
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    carried = {"UNIQ_KEY": OTHER[:-1] + "9", "traceparent": f"00-{trace}-{parent}-01"}
    brokers.put_message("orders", 0, b"{}", MOMENT_MS, **carried)

    def spans(offset: int) -> list[dict[str, object]]:
        url = reverse("family:export", args=["otlp", "broker-a", 0, offset, "orders"])
        found = json.loads(actors.reader.get(url).content)
        made: list[dict[str, object]] = found["resourceSpans"][0]["scopeSpans"][0]["spans"]
        return made

    brokers.recorded = [noted("delivered", 2_100, group="fraud-check", clientId="off0")]
    own, continued = spans(0), spans(3)

    assert {each["traceId"] for each in own} == {KEY.lower()}
    assert "parentSpanId" not in own[0]
    assert {each["parentSpanId"] for each in own[1:]} == {own[0]["spanId"]}
    assert len({each["spanId"] for each in own}) == len(own)
    named = {each["name"]: each for each in own}
    consumed = named["process orders"]
    assert (consumed["kind"], consumed["links"]) == (
        5,
        [{"traceId": KEY.lower(), "spanId": own[0]["spanId"]}],
    )
    handed = json.dumps(named["receive orders"]["attributes"])
    assert '"messaging.client.id", "value": {"stringValue": "off0"}' in handed
    assert (continued[0]["traceId"], continued[0]["parentSpanId"]) == (trace, parent)
    lines = reverse("family:export", args=["jsonl", "broker-a", 0, 0, "orders"])
    read = [json.loads(each) for each in actors.reader.get(lines).text.splitlines()]
    assert {"stored", "flushed", "retry"} <= {each["stage"] for each in read}
    assert actors.reader.get(lines.replace("jsonl", "csv")).status_code == 404


SPAN = {"group": "fraud-check", "fromOffset": "0", "queueOffset": "3", "worstOffset": "0"}


def of_fraud_check(answer: Any, stage: str) -> list[Step]:
    steps = (line.step for line in answer.context["waterfall"].lines)
    return [each for each in steps if (each.stage, each.actor) == (stage, "fraud-check")]


@pytest.mark.django_db
def test_notes_of_earlier_messages_are_not_before_this_one_was_stored(
    actors: Actors, brokers: FakeBroker
) -> None:
    a_family(brokers)
    brokers.recorded = [
        noted("delivered", -700_000, latencyUs=4_000, **SPAN),
        noted("acknowledged", 3_000, latencyUs=703_000, **SPAN),
    ]

    together = opened(actors, "orders")
    (delivered,), (acknowledged,) = (
        of_fraud_check(together, each) for each in ("delivered", "acknowledged")
    )

    assert (delivered.begin_us, delivered.certainty) == (None, "inferred")
    assert acknowledged.begin_us == MOMENT_MS * 1_000
    assert acknowledged.end_us == MOMENT_MS * 1_000 + 3_000

    brokers.recorded += [
        noted("delivered", 2_100, latencyUs=2_000, group="fraud-check"),
        noted("acknowledged", 3_000, latencyUs=900, group="fraud-check"),
    ]
    (delivered,) = of_fraud_check(opened(actors, "orders"), "delivered")
    assert delivered.certainty == "exact"
    assert delivered.end_us == MOMENT_MS * 1_000 + 2_100


@pytest.mark.django_db
def test_the_slowest_come_first_and_link_to_their_histories(
    actors: Actors, brokers: FakeBroker
) -> None:
    a_family(brokers)
    brokers.recorded = [
        noted("delivered", 10, latencyUs=900, group="billing"),
        noted("delivered", 20, latencyUs=70_000, fromOffset="0", worstOffset="1", queueOffset="9"),
        noted("refused", 30, codeName="TOPIC_NOT_EXIST", remark="no such topic"),
    ]
    path = reverse("tracing:recorded")

    slowest = actors.reader.get(path)
    errors = actors.reader.get(path, {"ask": "errors", "minutes": "10"})

    assert "dict" not in slowest.text
    assert [row.took for row in slowest.context["rows"]] == ["70 ms", "900 µs", ""]
    assert reverse("family:message", args=["broker-a", 0, 1, "orders"]) in slowest.text
    assert [row.label for row in errors.context["rows"]] == ["rejected"]
    assert "no such topic" in errors.text
    brokers.recorder_fails = BrokerDownError("127.0.0.1:10911", "it has no recorder")
    assert "it has no recorder" in actors.reader.get(path).text


@pytest.mark.django_db
@pytest.mark.parametrize("minutes", ["nonsense", "0", "-5", "61"])
def test_impossible_minutes_show_the_problem_and_no_events(
    minutes: str, actors: Actors, brokers: FakeBroker
) -> None:
    a_family(brokers)
    brokers.recorded = [noted("delivered", 10, latencyUs=900, group="billing")]

    answer = actors.reader.get(reverse("tracing:recorded"), {"minutes": minutes})

    assert "Enter a whole number of minutes from 1 to 60." in answer.text
    assert answer.context["rows"] == []


@pytest.mark.django_db
def test_exactly_the_slowest_hundred_are_shown(actors: Actors, brokers: FakeBroker) -> None:
    a_family(brokers)
    brokers.recorded = [
        noted("delivered", number, latencyUs=(number * 7) % 131, group="billing")
        for number in range(1, 131)
    ]

    rows = actors.reader.get(reverse("tracing:recorded")).context["rows"]

    assert [row.latency_us for row in rows] == list(range(130, 30, -1))


@pytest.mark.django_db
def test_an_administrator_has_everything_traced_for_some_minutes(
    actors: Actors, brokers: FakeBroker
) -> None:
    path = reverse("tracing:level")

    for request in ({"level": "full"}, {"level": "full", "minutes": "61"}, {"level": "loud"}):
        actors.admin.post(path, request)
    assert brokers.trace_level[0] == "recorder"
    actors.admin.post(path, {"level": "full", "minutes": "5"})

    assert brokers.trace_level == ("full", 5)
    assert Entry.objects.get(action="trace.level").after == {"level": "full", "minutes": 5}
    assert "everything" in actors.reader.get(reverse("tracing:recorded")).text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("level", "is_off"), [("off", True), ("watched", True), ("recorder", False)]
)
def test_the_page_shows_when_no_recorder_is_on(
    actors: Actors, brokers: FakeBroker, level: str, is_off: bool
) -> None:
    actors.admin.post(reverse("tracing:level"), {"level": level})

    text = actors.reader.get(reverse("tracing:recorded")).text

    assert brokers.trace_level == (level, None)
    assert ("flight recorder is off on every broker" in text) is is_off
