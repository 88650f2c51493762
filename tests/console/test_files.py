"""Configuration files: view, edit by plans, merge or reject, undo, versions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse

from console.accounts.actions import Action
from console.accounts.models import CustomRole
from console.broker.files.models import VERSIONS_KEPT, FileVersion, keep
from console.gateway.access import gateway
from console.gateway.errors import RequestFailedError
from console.gateway.fakes.broker import ADDRESS
from console.gateway.files import ConfigFile
from console.people.audit.models import Entry
from tests.console.plans import token_on

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client

    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors

pytestmark = pytest.mark.django_db

BROKER = "broker-a"
TOPICS, GROUPS, OFFSETS = "topics.json", "subscriptionGroup.json", "consumerOffset.json"


@pytest.fixture
def orders(brokers: FakeBroker) -> FakeBroker:
    brokers.add_topic("Orders", queue_nums=4)
    brokers.add_topic("Bills", queue_nums=2)
    brokers.add_group("billing", topic="Orders")
    return brokers


def edit_of(file: str) -> str:
    return reverse("files:edit", args=[BROKER, file])


def opened(client: Client, file: str) -> tuple[str, dict[str, str]]:
    """Return the text in the editor, and the form's other fields."""
    answer = client.get(edit_of(file))
    return answer.context["text"], {"base": str(answer.context["base"])}


def sent(client: Client, file: str, old: str, new: str, **more: str) -> Any:
    """Replace a part of the text, and send the form."""
    text, fields = opened(client, file)
    assert old in text
    return client.post(edit_of(file), {**fields, "text": text.replace(old, new, 1), **more})


def applied(client: Client, file: str, old: str, new: str, **more: str) -> Any:
    plan = sent(client, file, old, new)
    return client.post(edit_of(file), {"token": token_on(plan), **more})


def of_topic(name: str) -> str:
    return f'"{name}":{{'


def lines_of(answer: Any) -> list[tuple[str, str | None, str | None]]:
    return [
        (line.label, line.now, line.wanted)
        for shown in answer.context["shown"]
        for _part, lines in shown.parts
        for line in lines
    ]


def test_a_file_is_shown_in_the_brokers_format(actors: Actors, orders: FakeBroker) -> None:
    orders.offsets["billing", "Orders", 0] = 7

    shown = actors.admin.get(reverse("files:show", args=[BROKER, OFFSETS])).context["text"]
    loaded = actors.admin.get(reverse("files:download", args=[BROKER, OFFSETS]))

    assert shown == '{\n\t"offsetTable":{\n\t\t"Orders@billing":{0:7\n\t\t}\n\t}\n}'
    assert loaded.content.decode() == shown
    assert loaded["content-disposition"] == 'attachment; filename="consumerOffset.json"'


def test_a_filter_keeps_the_entries_whose_names_contain_it(
    actors: Actors, orders: FakeBroker
) -> None:
    answer = actors.admin.get(reverse("files:show", args=[BROKER, TOPICS]), {"q": "ord"})

    assert '"Orders"' in answer.context["text"]
    assert '"Bills"' not in answer.context["text"]
    assert (answer.context["count"], answer.context["total"]) == (1, 2)


def test_a_changed_value_is_shown_then_applied_then_undone(
    actors: Actors, orders: FakeBroker
) -> None:
    plan = sent(
        actors.admin,
        TOPICS,
        '"perm":6,\n\t\t\t"readQueueNums":4',
        '"perm":4,\n\t\t\t"readQueueNums":4',
    )
    assert lines_of(plan) == [("perm", "6", "4")]
    assert orders.topic_configs["Orders"].perm == 6

    actors.admin.post(edit_of(TOPICS), {"token": token_on(plan), "reason": "read only for now"})

    assert orders.topic_configs["Orders"].perm == 4
    entry = Entry.objects.get()
    assert (entry.action, entry.subject, entry.outcome) == (
        "config.apply",
        "broker-a · topics.json",
        "done",
    )
    assert entry.remark == "read only for now"
    assert (entry.before["Orders"]["perm"], entry.after["Orders"]["perm"]) == (6, 4)
    actors.admin.post(reverse("files:undo", args=[entry.pk]))
    assert orders.topic_configs["Orders"].perm == 6


def test_a_new_entry_is_created_and_a_missing_one_removed(
    actors: Actors, orders: FakeBroker
) -> None:
    new = '"audit":{"retryMaxTimes":3},\n\t\t"billing":{'
    applied(actors.admin, GROUPS, '"billing":{', new)
    assert orders.group_configs["audit"].retry_max_times == 3
    text, fields = opened(actors.admin, GROUPS)
    table = json.loads(text)
    del table["subscriptionGroupTable"]["audit"]

    plan = actors.admin.post(edit_of(GROUPS), {**fields, "text": json.dumps(table)})

    (shown,) = plan.context["shown"]
    assert shown.costs == ("1 group loses its configuration but keeps its offsets: audit.",)
    refused = actors.admin.post(edit_of(GROUPS), {"token": token_on(plan)})
    assert (refused.status_code, "audit" in orders.group_configs) == (422, True)
    actors.admin.post(edit_of(GROUPS), {"token": token_on(plan), "accepted": "on"})
    assert "audit" not in orders.group_configs


def test_a_topic_with_messages_is_only_removed_after_typing_the_broker(
    actors: Actors, orders: FakeBroker
) -> None:
    orders.put("Bills", 0, 1_000, 2_000)
    text, fields = opened(actors.admin, TOPICS)
    table = json.loads(text)
    del table["topicConfigTable"]["Bills"]

    plan = actors.admin.post(edit_of(TOPICS), {**fields, "text": json.dumps(table)})

    (shown,) = plan.context["shown"]
    assert shown.costs == ("1 topic will be deleted from broker-a, with 2 messages: Bills.",)
    token = {"token": token_on(plan), "accepted": "on"}
    assert actors.admin.post(edit_of(TOPICS), token).status_code == 422
    assert "Bills" in orders.topic_configs
    actors.admin.post(edit_of(TOPICS), {**token, "name": BROKER})
    assert "Bills" not in orders.topic_configs


def test_others_changes_elsewhere_stay(actors: Actors, orders: FakeBroker) -> None:
    text, fields = opened(actors.admin, TOPICS)
    orders.topic_configs["Bills"] = replace(orders.topic_configs["Bills"], perm=4)
    mine = json.loads(text)
    mine["topicConfigTable"]["Orders"]["order"] = True

    plan = actors.admin.post(edit_of(TOPICS), {**fields, "text": json.dumps(mine)})

    assert (plan.status_code, lines_of(plan)) == (200, [("order", "no", "yes")])
    assert "1 other entry has changed since you opened the file" in plan.content.decode()
    actors.admin.post(edit_of(TOPICS), {"token": token_on(plan)})
    assert (orders.topic_configs["Bills"].perm, orders.topic_configs["Orders"].order) == (4, True)


def test_others_changes_in_the_same_entry_are_shown_beside_it_and_merged_by_key(
    actors: Actors, orders: FakeBroker
) -> None:
    text, fields = opened(actors.admin, TOPICS)
    orders.topic_configs["Orders"] = replace(orders.topic_configs["Orders"], perm=4)
    mine = json.loads(text)
    mine["topicConfigTable"]["Orders"]["order"] = True

    plan = actors.admin.post(edit_of(TOPICS), {**fields, "text": json.dumps(mine)})

    assert plan.status_code == 409
    assert lines_of(plan) == [("order", "no", "yes"), ("perm", "4", "4")]
    actors.admin.post(edit_of(TOPICS), {"token": token_on(plan)})
    orders_now = orders.topic_configs["Orders"]
    assert (orders_now.perm, orders_now.order) == (4, True)


def test_a_value_changed_after_the_preview_is_not_overwritten(
    actors: Actors, orders: FakeBroker
) -> None:
    plan = sent(actors.admin, TOPICS, '"perm":6', '"perm":4')
    changed = next(iter(plan.context["shown"][0].plan.wanted))
    orders.topic_configs[changed] = replace(orders.topic_configs[changed], order=True)

    answer = actors.admin.post(edit_of(TOPICS), {"token": token_on(plan)})

    assert (answer.status_code, orders.topic_configs[changed].perm) == (409, 6)
    assert not Entry.objects.exists()


def test_a_foreign_plan_is_rejected(actors: Actors, orders: FakeBroker) -> None:
    answer = actors.admin.post(edit_of(TOPICS), {"token": "made up"}, follow=True)

    assert "nothing was changed" in answer.content.decode()
    assert not Entry.objects.exists()


@pytest.mark.parametrize(
    ("file", "text", "message", "line"),
    [
        (TOPICS, '{\n"topicConfigTable":{\n"A":{,}}}', "isn't valid JSON", 3),
        (TOPICS, '{"table":{}}', "A topics.json must have an object topicConfigTable.", 1),
        (
            TOPICS,
            '{"topicConfigTable":{\n"A":{"readQueueNums":1}}}',
            "A is missing writeQueueNums.",
            2,
        ),
        (
            TOPICS,
            '{"topicConfigTable":{\n"A":{"readQueueNums":1,\n"writeQueueNums":0}}}',
            "A: writeQueueNums must be between 1 and 65535.",
            3,
        ),
        (
            TOPICS,
            '{"topicConfigTable":{"A":{"readQueueNums":1,"writeQueueNums":1,"topicName":"B"}}}',
            "A has a different name, B, in topicName.",
            1,
        ),
        (GROUPS, '{"subscriptionGroupTable":{"g":[]}}', "g must be an object.", 1),
        (
            GROUPS,
            '{"subscriptionGroupTable":{"g":{"consumeEnable":1}}}',
            "g: consumeEnable must be true or false.",
            1,
        ),
        (
            GROUPS,
            '{"subscriptionGroupTable":{"g":{"retryTimes":1}}}',
            "These keys can't be changed by a request, so they can't be saved: retryTimes.",
            None,
        ),
        (OFFSETS, '{"offsetTable":{"Orders":{0:1}}}', "topic@group", 1),
        (
            OFFSETS,
            '{"offsetTable":{"Orders@g":{0:-1}}}',
            "the offset of queue 0 must be a whole",
            1,
        ),
        (OFFSETS, '{"offsetTable":{"Orders@g":{x:1}}}', "isn't valid JSON", None),
    ],
)
def test_an_invalid_text_is_rejected_with_its_line(
    actors: Actors, orders: FakeBroker, file: str, text: str, message: str, line: int | None
) -> None:
    _text, fields = opened(actors.admin, file)

    live = actors.admin.post(edit_of(file), {"check": "on", "text": text}).json()["problems"]
    answer = actors.admin.post(edit_of(file), {**fields, "text": text})

    assert message in live[0][1]
    if line is not None:
        assert live[0][0] == line
    assert (answer.status_code, answer.context["text"]) == (422, text)
    assert answer.context["problems"][0].text == live[0][1]


def test_the_brokers_own_entries_are_rejected(actors: Actors, brokers: FakeBroker) -> None:
    brokers.add_topic("TBW102", queue_nums=4)

    plan = sent(actors.admin, TOPICS, '"perm":6', '"perm":4')

    (shown,) = plan.context["shown"]
    assert shown.refusals == (
        "TBW102 is internal to the broker and can't be changed by a request.",
    )
    actors.admin.post(edit_of(TOPICS), {"token": token_on(plan)})
    assert brokers.topic_configs["TBW102"].perm == 6


def test_an_offset_is_stored_for_an_offline_group_and_sent_to_members_otherwise(
    actors: Actors, orders: FakeBroker
) -> None:
    orders.put("Orders", 0, *range(1, 11))
    orders.offsets["billing", "Orders", 0] = 7
    orders.add_group("online", online=True)
    orders.offsets["online", "Orders", 0] = 7

    for group in ("billing", "online"):
        old = f'"Orders@{group}":{{0:7'
        answer = sent(actors.admin, OFFSETS, old, old.replace("7", "3"))
        (shown,) = answer.context["shown"]
        assert shown.costs == ("4 messages will be redelivered, 0 skipped.",)
        token = {"token": token_on(answer), "accepted": "on"}
        actors.admin.post(edit_of(OFFSETS), token)
        assert orders.offsets[group, "Orders", 0] == 3

    assert [group for group, _topic, _moves in orders.moves] == ["online"]


@pytest.mark.parametrize(
    ("new", "text"),
    [
        ("{0:11", "Orders@billing: queue 0 has offsets from 0 to 10."),
        ("{0:7,9:1", "Orders@billing: the topic has no queue 9 on this broker."),
        ("{1:0", "you can't delete only the offset of queue 0"),
    ],
)
def test_an_offset_that_no_request_sets_is_rejected(
    actors: Actors, orders: FakeBroker, new: str, text: str
) -> None:
    orders.put("Orders", 0, *range(1, 11))
    orders.offsets["billing", "Orders", 0] = 7

    answer = sent(actors.admin, OFFSETS, "{0:7", new)

    assert text in answer.context["shown"][0].refusals[0]
    assert orders.offsets["billing", "Orders", 0] == 7


def test_a_brokers_rejections_are_reported_beside_the_rest(
    actors: Actors, orders: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = gateway().topics.save

    def refuse_bills(config: Any, broker_names: Any) -> None:
        if config.topic == "Bills":
            raise RequestFailedError(ADDRESS, 1, "no more queues")
        save(config, broker_names)

    text, fields = opened(actors.admin, TOPICS)
    mine = json.loads(text)
    for name in ("Orders", "Bills"):
        mine["topicConfigTable"][name]["order"] = True
    plan = actors.admin.post(edit_of(TOPICS), {**fields, "text": json.dumps(mine)})
    names = list(plan.context["shown"][0].plan.wanted)
    monkeypatch.setattr(gateway().topics, "save", refuse_bills)

    answer = actors.admin.post(edit_of(TOPICS), {"token": token_on(plan)})

    assert "no more queues" in answer.content.decode()
    left = answer.context["shown"][0].plan.wanted
    done = names[: names.index("Bills")]
    assert orders.topic_configs["Bills"].order is False
    entry = Entry.objects.get()
    assert entry.outcome == "failed"
    assert [name for name in names if entry.after[name]["order"]] == done
    assert "Bills" in left


def test_each_version_has_an_author_and_reason_and_can_be_compared_and_restored(
    actors: Actors, orders: FakeBroker
) -> None:
    applied(actors.admin, TOPICS, '"perm":6', '"perm":4', reason="for the audit")
    history = reverse("files:history", args=[BROKER, TOPICS])
    newer, older = FileVersion.objects.all()
    assert (newer.source, newer.by, newer.reason) == ("applied", "ada", "for the audit")
    assert (older.source, older.by) == ("seen", "")

    compared = actors.admin.get(history, {"from": older.pk, "to": newer.pk})

    lines = [line for _part, lines in compared.context["parts"] for line in lines]
    assert [(each.label, each.now, each.wanted) for each in lines] == [("perm", "6", "4")]
    restore = reverse("files:restore", args=[older.pk])
    actors.admin.post(restore, {"token": token_on(actors.admin.get(restore))})
    assert {each.perm for each in orders.topic_configs.values()} == {6}


def test_a_change_made_elsewhere_becomes_a_version_when_it_is_noticed(
    actors: Actors, orders: FakeBroker
) -> None:
    show = reverse("files:show", args=[BROKER, TOPICS])
    actors.admin.get(show)
    actors.admin.get(show)
    orders.add_topic("Late")
    actors.admin.get(show)

    assert [(each.source, each.count) for each in FileVersion.objects.all()] == [
        ("seen", 3),
        ("seen", 2),
    ]


def test_only_the_newest_versions_are_kept(db: None) -> None:
    for number in range(VERSIONS_KEPT + 3):
        keep(BROKER, ConfigFile.TOPICS, {f"T{number}": {"perm": 6}})
    keep("broker-b", ConfigFile.TOPICS, {"T": {"perm": 6}})

    of_broker = FileVersion.objects.filter(broker_name=BROKER)
    assert of_broker.count() == VERSIONS_KEPT
    assert of_broker[0].entries == {f"T{VERSIONS_KEPT + 2}": {"perm": 6}}


def test_a_form_opened_on_an_expired_version_keeps_its_text(
    actors: Actors, orders: FakeBroker
) -> None:
    text, _fields = opened(actors.admin, TOPICS)

    answer = actors.admin.post(edit_of(TOPICS), {"base": "999", "text": text})

    assert (answer.status_code, answer.context["text"]) == (422, text)


def test_the_schema_names_each_key_with_its_bounds(actors: Actors, brokers: FakeBroker) -> None:
    found = actors.admin.get(reverse("files:schema", args=[TOPICS])).json()

    entry = found["properties"]["topicConfigTable"]["additionalProperties"]
    assert entry["properties"]["perm"]["maximum"] == 7
    assert entry["required"] == ["readQueueNums", "writeQueueNums"]


def mine(account: User, *actions: Action, topics: str = "", groups: str = "") -> None:
    """Assign a custom role."""
    role = CustomRole.objects.create(
        name="mine",
        actions=[each.value for each in actions],
        topics=topics.split(),
        groups=groups.split(),
    )
    role.members.add(account)


def test_everyone_may_view_files_and_read_only_users_see_no_controls(
    actors: Actors, limited: Client, orders: FakeBroker
) -> None:
    orders.offsets["billing", "Orders", 0] = 7
    for client, is_offered in ((limited, False), (actors.reader, False), (actors.operator, True)):
        for name in ("index", "show", "download", "history", "schema", "export", "drift"):
            of_file = [BROKER, TOPICS] if name in ("show", "download", "history") else []
            arguments = [TOPICS] if name == "schema" else of_file
            assert client.get(reverse(f"files:{name}", args=arguments)).status_code == 200
        index = client.get(reverse("files:index")).content.decode()
        shown = client.get(reverse("files:show", args=[BROKER, TOPICS])).content.decode()
        past = client.get(reverse("files:history", args=[BROKER, TOPICS])).content.decode()

        assert "<h1>Configuration</h1>" in index
        assert (edit_of(TOPICS) in index) == is_offered
        assert (reverse("files:import") in index) == is_offered
        assert (edit_of(TOPICS) in shown) == is_offered
        assert ("Restore this version" in past) == is_offered
        for file in (TOPICS, GROUPS, OFFSETS):
            assert (client.get(edit_of(file)).status_code == 200) == is_offered
        assert (client.get(edit_of("consumerFilter.json")).status_code == 200) == is_offered
        assert client.get(edit_of("delayOffset.json")).status_code == 403
        assert (client.get(reverse("files:import")).status_code == 200) == is_offered
    assert actors.admin.get(edit_of("delayOffset.json")).status_code == 200


def test_a_role_changes_only_its_entries_and_is_told_why(
    actors: Actors, limited: Client, limited_account: User, orders: FakeBroker
) -> None:
    mine(limited_account, Action.TOPIC, topics="Ord*")
    old, new = '"perm":6,\n\t\t\t"readQueueNums":{}', '"perm":4,\n\t\t\t"readQueueNums":{}'

    applied(limited, TOPICS, old.format(4), new.format(4))
    assert orders.topic_configs["Orders"].perm == 4

    refused = sent(limited, TOPICS, old.format(2), new.format(2))
    (shown,) = refused.context["shown"]
    assert shown.refusals == ("You can't change Bills: this requires topic.change there.",)
    assert "Applying" not in refused.content.decode()
    # Only an authorized user can sign a plan; the plan itself grants nothing.
    plan = sent(actors.admin, TOPICS, old.format(2), new.format(2))
    answer = limited.post(edit_of(TOPICS), {"token": token_on(plan)})

    assert (answer.status_code, orders.topic_configs["Bills"].perm) == (403, 6)
    assert str(Action.TOPIC.label) in answer.content.decode()
    assert [entry.subject for entry in Entry.objects.filter(outcome="done")] == [
        "broker-a · topics.json"
    ]
    for file in (GROUPS, OFFSETS):
        assert limited.get(edit_of(file)).status_code == 403
    show = reverse("files:show", args=[BROKER, GROUPS])
    assert edit_of(GROUPS) not in limited.get(show).content.decode()


def test_offsets_and_groups_are_copied_by_the_groups_name(
    limited: Client, limited_account: User, orders: FakeBroker
) -> None:
    orders.put("Orders", 0, *range(1, 11))
    orders.add_group("audit", topic="Orders")
    for group in ("billing", "audit"):
        orders.offsets[group, "Orders", 0] = 7
    mine(limited_account, Action.OFFSET, groups="bill*")
    theirs, own = '"Orders@audit":{0:7', '"Orders@billing":{0:7'

    plan = sent(limited, OFFSETS, theirs, theirs.replace("7", "3"))
    applied(limited, OFFSETS, own, own.replace("7", "3"), accepted="on")

    (shown,) = plan.context["shown"]
    assert shown.refusals == ("You can't change Orders@audit: this requires offset.reset there.",)
    assert orders.offsets["audit", "Orders", 0] == 7
    assert orders.offsets["billing", "Orders", 0] == 3
    assert limited.get(edit_of(GROUPS)).status_code == 403
    CustomRole.objects.update(actions=[Action.GROUP.value])
    plan = sent(limited, GROUPS, '"billing":{', '"audit2":{"retryMaxTimes":3},\n\t\t"billing":{')
    (shown,) = plan.context["shown"]
    assert shown.refusals == ("You can't change audit2: this requires group.change there.",)


def test_undo_and_an_older_version_need_the_permission_of_the_change(
    actors: Actors, limited: Client, limited_account: User, orders: FakeBroker
) -> None:
    old, new = '"perm":6,\n\t\t\t"readQueueNums":4', '"perm":4,\n\t\t\t"readQueueNums":4'
    applied(actors.admin, TOPICS, old, new)
    undo = reverse("files:undo", args=[Entry.objects.get().pk])
    first = FileVersion.objects.filter(file=TOPICS).earliest("pk")
    back = reverse("files:restore", args=[first.pk])
    mine(limited_account, Action.TOPIC, topics="Bills")

    for address in (undo, back):
        plan = limited.get(address)
        assert "change Orders" in plan.content.decode()
        assert limited.post(address, {"token": token_on(plan)}).status_code == 403
    assert limited.post(undo).status_code == 403
    assert orders.topic_configs["Orders"].perm == 4

    CustomRole.objects.update(topics=["Orders"])
    limited.post(undo)
    assert orders.topic_configs["Orders"].perm == 6
