"""delayOffset.json and consumerFilter.json: edit by plans that explain the effect, undo."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse

from broker_core.message.names import RMQ_SYS_SCHEDULE_TOPIC
from console.broker.files.delays import advanced
from console.broker.files.models import FileVersion
from console.gateway.access import gateway
from console.gateway.answers import TopicQueue
from console.gateway.errors import GatewayError
from console.gateway.files import ConfigFile, GroupFilter
from console.people.audit.models import Entry
from tests.console.plans import token_on

if TYPE_CHECKING:
    from django.test import Client

    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors

pytestmark = pytest.mark.django_db

BROKER = "broker-a"
DELAYS, FILTERS = "delayOffset.json", "consumerFilter.json"


@pytest.fixture
def waiting(brokers: FakeBroker) -> FakeBroker:
    """Level 1 has delivered 3 of 5 messages, and the first is no longer stored."""
    brokers.add_topic(RMQ_SYS_SCHEDULE_TOPIC, queue_nums=4)
    queue = brokers.queues[TopicQueue(RMQ_SYS_SCHEDULE_TOPIC, 0)]
    queue.min_offset, queue.store_timestamps = 1, [1_000, 2_000, 3_000, 4_000]
    brokers.other_tables[ConfigFile.DELAYS] = {"1": 3, "2": 0}
    return brokers


@pytest.fixture
def filtered(brokers: FakeBroker) -> FakeBroker:
    """billing reads Orders by an expression, and has 2 of 3 messages unread."""
    brokers.add_topic("Orders")
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.put("Orders", 0, 1_000, 2_000, 3_000)
    brokers.offsets["billing", "Orders", 0] = 1
    made = GroupFilter("billing", "Orders", "SQL92", "price > 10")
    gateway().files.save_filter(made, BROKER)
    return brokers


def edit_of(file: str) -> str:
    return reverse("files:edit", args=[BROKER, file])


def planned(client: Client, file: str, old: str, new: str) -> Any:
    """Replace a part of the text in the editor, and send the form."""
    answer = client.get(edit_of(file))
    text = answer.context["text"]
    assert old in text
    fields = {"base": str(answer.context["base"]), "text": text.replace(old, new, 1)}
    return client.post(edit_of(file), fields)


def costs_of(answer: Any) -> tuple[str, ...]:
    (shown,) = answer.context["shown"]
    return tuple(shown.costs)


def refusals_of(answer: Any) -> tuple[str, ...]:
    (shown,) = answer.context["shown"]
    return tuple(shown.refusals)


def apply(client: Client, file: str, plan: Any, **more: str) -> Any:
    return client.post(edit_of(file), {"token": token_on(plan), "accepted": "on", **more})


def levels(broker: FakeBroker) -> dict[str, int]:
    return broker.other_tables[ConfigFile.DELAYS]


def expression(broker: FakeBroker) -> str | None:
    table = broker.other_tables.get(ConfigFile.FILTERS, {})
    found = table.get("Orders", {}).get("groupFilterData", {}).get("billing")
    return None if found is None else str(found["expression"])


def test_a_level_moved_ahead_skips_messages_and_undo_moves_it_back(
    actors: Actors, waiting: FakeBroker
) -> None:
    plan = planned(actors.admin, DELAYS, "1:3", "1:5")
    assert costs_of(plan) == ("Level 1: 2 delayed messages will be skipped and never delivered.",)

    unconfirmed = actors.admin.post(edit_of(DELAYS), {"token": token_on(plan)})
    assert (unconfirmed.status_code, levels(waiting)) == (422, {"1": 3, "2": 0})
    apply(actors.admin, DELAYS, plan, reason="the shop is closed")

    assert levels(waiting) == {"1": 5, "2": 0}
    entry = Entry.objects.get()
    assert (entry.action, entry.subject, entry.outcome, entry.remark) == (
        "config.apply",
        "broker-a · delayOffset.json",
        "done",
        "the shop is closed",
    )
    assert (entry.before, entry.after) == ({"1": {"offset": "3"}}, {"1": {"offset": "5"}})
    version = FileVersion.objects.first()
    assert version is not None
    assert (version.source, version.file, version.by) == ("applied", DELAYS, "ada")
    undo = reverse("files:undo", args=[entry.pk])
    shown = actors.admin.get(undo)
    assert costs_of(shown) == (
        "Level 1: 2 delayed messages will be delivered again, as new messages.",
    )
    actors.admin.post(undo, {"token": token_on(shown), "accepted": "on"})
    assert levels(waiting) == {"1": 3, "2": 0}


def test_a_level_moved_back_delivers_stored_messages(actors: Actors, waiting: FakeBroker) -> None:
    plan = planned(actors.admin, DELAYS, "1:3", "1:2")

    assert costs_of(plan) == (
        "Level 1: 1 delayed message will be delivered again, as a new message.",
    )


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("1:3", "1:6", "Level 1 has offsets from 1 to 5."),
        ("1:3", "1:0", "Level 1 has offsets from 1 to 5."),
        ("2:0", "2:1", "Level 2 has offsets from 0 to 0."),
        ("1:3,", "", "Level 1: its offset can't be deleted. Use 0 for the beginning."),
    ],
)
def test_an_offset_outside_all_levels_is_rejected(
    actors: Actors, waiting: FakeBroker, old: str, new: str, text: str
) -> None:
    plan = planned(actors.admin, DELAYS, old, new)

    assert refusals_of(plan) == (text,)
    apply(actors.admin, DELAYS, plan)
    assert levels(waiting) == {"1": 3, "2": 0}
    assert not Entry.objects.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"offsetTable":{"0":1}}', "0: A delay level is a number, 1 or greater."),
        ('{"offsetTable":{"one":1}}', "one: A delay level is a number, 1 or greater."),
        ('{"offsetTable":{"1":-1}}', "Level 1: the offset must be a whole number, 0 or greater."),
        (
            '{"offsetTable":{"1":9223372036854775808}}',
            "the offset must be a whole number, 0 or greater.",
        ),
        ('{"offsetTable":{"1":true}}', "the offset must be a whole number, 0 or greater."),
    ],
)
def test_an_invalid_level_file_is_rejected_with_its_line(
    actors: Actors, waiting: FakeBroker, text: str, message: str
) -> None:
    answer = actors.admin.post(edit_of(DELAYS), {"text": text, "check": "on"})

    ((line, found),) = answer.json()["problems"]
    assert (message in found, line) == (True, 1)


def test_deliveries_meanwhile_do_not_invalidate_a_plan_in_the_same_direction(
    actors: Actors, waiting: FakeBroker
) -> None:
    plan = planned(actors.admin, DELAYS, "1:3", "1:5")
    levels(waiting)["1"] = 4

    apply(actors.admin, DELAYS, plan)

    assert levels(waiting)["1"] == 5
    assert Entry.objects.get().before == {"1": {"offset": "4"}}


@pytest.mark.parametrize(
    ("seen", "now", "expected", "is_overtaken"),
    [(3, 4, 5, False), (3, 5, 4, True), (3, 4, 1, False), (3, 2, 5, True), (None, 2, 5, False)],
)
def test_a_plan_is_outdated_if_its_direction_would_change(
    seen: int | None, now: int, expected: int, is_overtaken: bool
) -> None:
    def at(offset: int | None) -> dict[str, Any]:
        return {"1": None if offset is None else {"offset": str(offset)}}

    assert (advanced(at(seen), at(now), at(expected)) != at(now)) is is_overtaken


def test_a_broker_without_deliveries_still_has_levels_to_move(
    actors: Actors, brokers: FakeBroker
) -> None:
    plan = planned(actors.admin, DELAYS, '"offsetTable":{', '"offsetTable":{3:0')

    assert (costs_of(plan), refusals_of(plan)) == ((), ())
    apply(actors.admin, DELAYS, plan)
    assert levels(brokers) == {"3": 0}


def test_a_new_expression_shows_its_effect_on_the_group_and_can_be_undone(
    actors: Actors, filtered: FakeBroker
) -> None:
    plan = planned(actors.admin, FILTERS, "price > 10", "price > 20")
    assert costs_of(plan) == (
        "Orders@billing: of 2 messages the group hasn't read here, it only receives those that "
        "match the new expression.",
        "Orders@billing: the group has connected consumers. A consumer that starts or subscribes "
        "again replaces this expression with its own.",
    )

    apply(actors.admin, FILTERS, plan)

    assert expression(filtered) == "price > 20"
    entry = Entry.objects.get()
    undo = reverse("files:undo", args=[entry.pk])
    actors.admin.post(undo, {"token": token_on(actors.admin.get(undo)), "accepted": "on"})
    assert expression(filtered) == "price > 10"


def test_an_invalid_expression_is_rejected_with_its_place(
    actors: Actors, filtered: FakeBroker
) -> None:
    plan = planned(actors.admin, FILTERS, "price > 10", "price >")
    text = plan.context["text"]
    checked = actors.admin.post(edit_of(FILTERS), {"text": text, "check": "on"})

    message = (
        "Orders@billing: the broker rejected the expression: unexpected end at character 8: "
        "expected a value."
    )
    line = next(at for at, each in enumerate(text.split("\n"), 1) if "expression" in each)
    assert plan.status_code == 422
    assert [(each.line, each.text) for each in plan.context["problems"]] == [(line, message)]
    assert checked.json()["problems"] == [[line, message]]
    assert expression(filtered) == "price > 10"


def test_a_filter_deletion_shows_what_members_will_get_and_can_be_undone(
    actors: Actors, filtered: FakeBroker
) -> None:
    opened = actors.admin.get(edit_of(FILTERS)).context["base"]
    fields = {"base": str(opened), "text": '{"filterDataByTopic":{}}'}
    plan = actors.admin.post(edit_of(FILTERS), fields)
    assert costs_of(plan) == (
        "Orders@billing: the group has connected consumers. Their pulls are rejected until a "
        "consumer's next heartbeat registers its filter again, within 30 seconds.",
    )

    apply(actors.admin, FILTERS, plan)

    assert expression(filtered) is None
    undo = reverse("files:undo", args=[Entry.objects.get().pk])
    actors.admin.post(undo, {"token": token_on(actors.admin.get(undo)), "accepted": "on"})
    assert expression(filtered) == "price > 10"


def test_a_group_without_members_loses_nothing_with_its_filter(
    actors: Actors, filtered: FakeBroker
) -> None:
    filtered.members.clear()
    opened = actors.admin.get(edit_of(FILTERS)).context["base"]
    fields = {"base": str(opened), "text": '{"filterDataByTopic":{}}'}

    plan = actors.admin.post(edit_of(FILTERS), fields)

    assert costs_of(plan) == (
        "Orders@billing: no consumer is using this filter now. It's recreated when a consumer "
        "subscribes.",
    )


def test_a_filter_of_an_unknown_topic_is_rejected(actors: Actors, filtered: FakeBroker) -> None:
    table = json.loads(actors.admin.get(edit_of(FILTERS)).context["text"])
    table["filterDataByTopic"]["Nowhere"] = table["filterDataByTopic"]["Orders"]
    opened = actors.admin.get(edit_of(FILTERS)).context["base"]

    plan = actors.admin.post(edit_of(FILTERS), {"base": str(opened), "text": json.dumps(table)})

    assert refusals_of(plan) == ("Nowhere@billing: no broker has this topic.",)


def test_the_brokers_copy_of_a_filter_is_shown_and_may_be_in_a_text(
    actors: Actors, filtered: FakeBroker
) -> None:
    shown = actors.admin.get(reverse("files:show", args=[BROKER, FILTERS])).context["text"]
    opened = actors.admin.get(edit_of(FILTERS)).context["base"]

    plan = actors.admin.post(edit_of(FILTERS), {"base": str(opened), "text": shown})

    for key in ("bloomFilterData", "bornTime", "clientVersion", "dead", "deadTime"):
        assert f'"{key}"' in shown
    assert plan.context["shown"] == []


@pytest.mark.parametrize(
    ("table", "message", "line"),
    [
        ('{"Orders":7}', "Orders must have an object groupFilterData with its groups.", 1),
        ('{"Orders":{"groupFilterData":{"g":7}}}', "Orders@g must be an object.", 1),
        ('{"Orders":\n{"groupFilterData":\n{"g":{}}}}', "Orders@g is missing expression.", 3),
        (
            '{"Orders":\n{"groupFilterData":\n{"g":{\n"expression":" "}}}}',
            "Orders@g: expression must be text.",
            4,
        ),
        (
            '{"Orders":{"groupFilterData":{"g":{"expression":"a","expressionType":"TAG"}}}}',
            "expressionType must be one of SQL92.",
            1,
        ),
        (
            '{"Orders":{"groupFilterData":{"g":{"expression":"a","color":"red"}}}}',
            "These keys can't be changed by a request, so they can't be saved: color.",
            None,
        ),
        ('{"a topic":{"groupFilterData":{"g":{"expression":"a"}}}}', "illegal characters", 1),
    ],
)
def test_an_invalid_filter_file_is_rejected_with_its_line(
    actors: Actors, filtered: FakeBroker, table: str, message: str, line: int | None
) -> None:
    text = f'{{"filterDataByTopic":{table}}}'

    answer = actors.admin.post(edit_of(FILTERS), {"text": text, "check": "on"})

    ((found_line, found),) = answer.json()["problems"]
    assert message in found
    assert found_line == line


def test_a_filter_registered_by_a_member_becomes_a_version_when_it_is_noticed(
    actors: Actors, filtered: FakeBroker
) -> None:
    show = reverse("files:show", args=[BROKER, FILTERS])
    actors.admin.get(show)
    gateway().files.save_filter(GroupFilter("billing", "Orders", "SQL92", "price > 99"), BROKER)
    actors.admin.get(show)

    versions = FileVersion.objects.filter(file=FILTERS)
    assert [each.entries["Orders@billing"]["expression"] for each in versions] == [
        "price > 99",
        "price > 10",
    ]


def test_filter_versions_can_be_compared_and_restored(actors: Actors, filtered: FakeBroker) -> None:
    actors.admin.get(reverse("files:show", args=[BROKER, FILTERS]))
    older = FileVersion.objects.get(file=FILTERS)
    apply(actors.admin, FILTERS, planned(actors.admin, FILTERS, "price > 10", "price > 20"))
    history = reverse("files:history", args=[BROKER, FILTERS])

    compared = actors.admin.get(history, {"from": older.pk})
    restore = reverse("files:restore", args=[older.pk])
    plan = actors.admin.get(restore)
    actors.admin.post(restore, {"token": token_on(plan), "accepted": "on"})

    lines = [line for _part, lines in compared.context["parts"] for line in lines]
    assert [(each.label, each.now, each.wanted) for each in lines] == [
        ("expression", "price > 10", "price > 20")
    ]
    assert expression(filtered) == "price > 10"


def test_delay_offsets_are_for_administrators(actors: Actors, waiting: FakeBroker) -> None:
    assert actors.operator.get(edit_of(DELAYS)).status_code == 403
    assert actors.operator.post(edit_of(DELAYS), {"text": "{}"}).status_code == 403


def test_filters_are_for_users_who_may_change_groups(actors: Actors, filtered: FakeBroker) -> None:
    assert actors.operator.get(edit_of(FILTERS)).status_code == 200
    assert actors.reader.get(edit_of(FILTERS)).status_code == 403
    assert actors.reader.post(edit_of(FILTERS), {"text": "{}"}).status_code == 403


def test_a_broker_that_does_not_change_them_reports_it(
    actors: Actors, filtered: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(actors.admin, FILTERS, "price > 10", "price > 20")

    def refuse(*_args: Any) -> None:
        raise GatewayError("The broker does not change this file.", "It is one of RocketMQ's own.")

    monkeypatch.setattr(gateway().files, "save_filter", refuse)
    answer = apply(actors.admin, FILTERS, plan)

    assert "The broker does not change this file." in answer.content.decode()
    assert Entry.objects.get().outcome == "failed"


@pytest.mark.parametrize("file", [DELAYS, FILTERS])
def test_the_schema_of_these_files_is_documented(
    actors: Actors, brokers: FakeBroker, file: str
) -> None:
    schema = actors.admin.get(reverse("files:schema", args=[file])).json()

    (table,) = schema["properties"].values()
    entry = table["additionalProperties"]
    if file == DELAYS:
        assert (entry["type"], entry["minimum"]) == ("integer", 0)
    else:
        of_group = entry["properties"]["groupFilterData"]["additionalProperties"]
        assert of_group["required"] == ["expression"]
        assert of_group["properties"]["expressionType"]["enum"] == ["SQL92"]
