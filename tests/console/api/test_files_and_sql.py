"""Configuration files and SQL by the API: plan, change, undo; run, save, schedule."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group

from console.accounts.models import CustomRole
from console.broker.files.models import FileVersion
from console.data.sql.models import SavedQuery
from console.data.sql.rights import every_right, grant
from console.people.audit.models import Entry
from tests.console.prerequisites import sql_world

pytestmark = pytest.mark.django_db

TOPICS = "/files/broker-a/topics.json"
OFFSETS = "/files/broker-a/consumerOffset.json"


@pytest.fixture
def orders(programs, brokers):
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    brokers.put("Orders", 0, 1_000)
    brokers.offsets["billing", "Orders", 0] = 0
    return brokers


def with_perm(programs, perm: int, topic: str = "Orders"):
    document = programs.admin.get(TOPICS).json()
    document["topicConfigTable"][topic]["perm"] = perm
    return document


def test_a_file_is_previewed_then_applied_then_undone(programs, orders) -> None:
    document = with_perm(programs, 4)
    plan = programs.admin.ask("PUT", f"{TOPICS}?dry_run=true", document).json()
    assert plan["changes"]["wanted"]["Orders"]["perm"] == 4
    assert orders.topic_configs["Orders"].perm == 6
    assert not Entry.objects.exists()

    done = programs.admin.ask("PUT", f"{TOPICS}?seen={plan['seen']}&reason=freeze", document)

    entry = Entry.objects.get(pk=done.json()["entry"])
    assert orders.topic_configs["Orders"].perm == 4
    assert (entry.action, entry.remark) == ("config.apply", "freeze")
    assert entry.token == programs.admin.token.name
    undone = programs.admin.post(f"/audit/{entry.pk}/undo")
    assert undone.status_code == 200
    assert orders.topic_configs["Orders"].perm == 6


def test_an_entry_changed_on_both_sides_is_rejected_and_others_stay(programs, orders) -> None:
    orders.add_topic("Bills")
    seen = programs.admin.ask("PUT", f"{TOPICS}?dry_run=true", with_perm(programs, 4)).json()
    document = with_perm(programs, 4)
    programs.admin.patch("/topics/Bills", {"perm": 2})

    beside = programs.admin.ask("PUT", f"{TOPICS}?seen={seen['seen']}", document)
    assert beside.status_code == 200
    assert orders.topic_configs["Bills"].perm == 2

    document["topicConfigTable"]["Bills"]["perm"] = 4
    late = programs.admin.ask("PUT", f"{TOPICS}?seen={seen['seen']}", document)
    assert late.status_code == 409
    assert orders.topic_configs["Bills"].perm == 2


def test_the_cost_must_be_accepted(programs, orders) -> None:
    document = programs.admin.get(OFFSETS).json()
    document["offsetTable"]["Orders@billing"]["0"] = 1

    refused = programs.admin.ask("PUT", OFFSETS, document)
    done = programs.admin.ask("PUT", f"{OFFSETS}?accept=true", document)

    assert refused.status_code == 409
    assert "1 skipped" in refused.json()["objection"]
    assert done.status_code == 200
    assert orders.offsets["billing", "Orders", 0] == 1


def test_delay_offsets_and_filters_are_changed_like_the_other_files(programs, orders) -> None:
    delays, filters = "/files/broker-a/delayOffset.json", "/files/broker-a/consumerFilter.json"
    orders.add_topic("SCHEDULE_TOPIC_XXXX", queue_nums=1)
    orders.put("SCHEDULE_TOPIC_XXXX", 0, 1_000, 2_000)
    entry = {"expression": "price > 10"}
    target = {"Orders": {"groupFilterData": {"billing": entry}, "topic": "Orders"}}

    plan = programs.admin.ask("PUT", f"{delays}?dry_run=true", {"offsetTable": {"1": 2}}).json()
    refused = programs.admin.ask("PUT", delays, {"offsetTable": {"1": 2}})
    moved = programs.admin.ask("PUT", f"{delays}?accept=true", {"offsetTable": {"1": 2}})
    made = programs.admin.ask("PUT", f"{filters}?accept=true", {"filterDataByTopic": target})
    report = programs.admin.get(filters).json()["filterDataByTopic"]["Orders"]["groupFilterData"]
    bad = {"Orders": {"groupFilterData": {"billing": {"expression": "price >"}}}}
    wrong = programs.admin.ask("PUT", filters, {"filterDataByTopic": bad})

    text = "Level 1: 2 delayed messages will be skipped and never delivered."
    assert (plan["objection"], refused.status_code) == (text, 409)
    assert (moved.status_code, made.status_code) == (200, 200)
    assert orders.other_tables["delayOffset.json"] == {"1": 2}
    assert report["billing"]["expression"] == "price > 10"
    assert report["billing"]["expressionType"] == "SQL92"
    assert wrong.status_code == 409
    assert "at character 8" in wrong.json()["refusal"]
    undone = programs.admin.post(f"/audit/{made.json()['entry']}/undo?accept=true")
    assert undone.status_code == 200
    assert programs.admin.get(filters).json() == {"filterDataByTopic": {}}


def test_a_version_can_be_restored(programs, orders) -> None:
    programs.admin.get("/files")
    version = FileVersion.objects.get(file="topics.json")
    programs.admin.ask("PUT", TOPICS, with_perm(programs, 4))

    programs.admin.post(f"/files/versions/{version.pk}/restore")

    assert orders.topic_configs["Orders"].perm == 6


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (TOPICS, {"topicConfigTable": {"Orders": {"perm": 99}}}, 422),
        (TOPICS, {"topics": {}}, 422),
        (TOPICS, ["x"], 422),
        (f"{TOPICS}?seen=99", {"topicConfigTable": {}}, 409),
        (f"{TOPICS}?seen=x", {"topicConfigTable": {}}, 422),
        ("/files/broker-a/delayOffset.json", {"offsetTable": {"1": 99}}, 409),
        ("/files/other/topics.json", {"topicConfigTable": {}}, 404),
    ],
)
def test_an_invalid_file_is_rejected_and_changes_nothing(
    path, body, status, programs, orders
) -> None:
    refused = programs.admin.ask("PUT", path, body)

    assert refused.status_code == status, refused.content
    assert not Entry.objects.filter(outcome="done").exists()


def test_programs_see_files_and_change_the_entries_permitted_to_their_owner(
    programs, orders, reader_account
) -> None:
    orders.add_topic("Bills")
    assert programs.reader.get(TOPICS).status_code == 200
    assert programs.reader.ask("PUT", TOPICS, with_perm(programs, 4)).status_code == 403
    role = CustomRole.objects.create(name="mine", actions=["topic.change"], topics=["Ord*"])
    role.members.add(reader_account)

    plan = programs.reader.ask("PUT", f"{TOPICS}?dry_run=true", with_perm(programs, 4, "Bills"))
    theirs = programs.reader.ask("PUT", TOPICS, with_perm(programs, 4, "Bills"))
    mine = programs.reader.ask("PUT", TOPICS, with_perm(programs, 4))

    assert plan.json()["refusal"] == "You can't change Bills: this requires topic.change there."
    assert (theirs.status_code, orders.topic_configs["Bills"].perm) == (403, 6)
    assert "isn't allowed to do this with Bills (topic.change)" in theirs.json()["detail"]
    assert (mine.status_code, orders.topic_configs["Orders"].perm) == (200, 4)
    offsets = programs.reader.get(OFFSETS).json()
    assert programs.reader.ask("PUT", OFFSETS, offsets).status_code == 403


@pytest.fixture
def lake(programs, admin_account, settings, monkeypatch, tmp_path):
    sql_world(admin_account, settings, monkeypatch, tmp_path)
    monkeypatch.setattr("console.data.sql.services.WAITED_S", 0)
    return SavedQuery.objects.get()


HOURLY = {"enabled": True, "kind": "interval", "every": 2, "period": "hours"}
WRITES = [
    ("POST", "/sql/runs", {"sql": "SELECT 1"}, "sql.run"),
    ("POST", "/sql/saved", {"sql": "SELECT 2", "name": "two"}, "sql.save"),
    ("DELETE", "/sql/saved/{query}", None, "sql.delete"),
    ("PATCH", "/sql/saved/{query}/schedule", HOURLY, "sql.schedule"),
    ("DELETE", "/sql/saved/{query}/schedule", None, "sql.unschedule"),
    ("PUT", "/sql/rights/group:7", {"topics": ["Ord*"]}, "account.sql"),
    ("DELETE", "/sql/rights/group:7", None, "account.sql"),
]


@pytest.mark.parametrize(("method", "path", "body", "action"), WRITES)
def test_a_change_of_sql_access_is_applied_and_recorded(
    method, path, body, action, programs, lake
) -> None:
    done = programs.admin.ask(method, path.format(query=lake.pk), body)

    assert done.status_code in (200, 201), done.content
    entry = Entry.objects.get()
    assert (entry.action, entry.outcome) == (action, "done")
    assert entry.token == programs.admin.token.name


@pytest.mark.parametrize(("method", "path", "body", "action"), WRITES)
def test_a_user_without_lake_access_may_not_use_it(
    method, path, body, action, programs, lake
) -> None:
    assert programs.operator.ask(method, path.format(query=lake.pk), body).status_code == 403


def test_others_queries_are_shared_but_not_changed(programs, lake, operator_account) -> None:
    grant(operator_account, None)
    SavedQuery.objects.update(is_shared=True)

    refused = programs.operator.delete(f"/sql/saved/{lake.pk}")

    assert refused.status_code == 404
    assert SavedQuery.objects.exists()


def test_a_permission_is_limited_to_the_named_topics(programs, lake) -> None:
    programs.admin.ask("PUT", "/sql/rights/group:7", {"topics": ["Ord*", "bills"]})
    assert [topics for _who, topics in every_right()] == [("Ord*", "bills")]

    programs.admin.ask("PUT", "/sql/rights/group:7", {"topics": None})
    assert [(str(grantee), topics) for grantee, topics in every_right()] == [("analysts", None)]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/sql/runs", {}, 422),
        ("PATCH", "/sql/saved/{query}/schedule", {"kind": "cron", "cron": "x"}, 422),
        ("PUT", "/sql/rights/group:7", {}, 422),
        ("PUT", "/sql/rights/group:7", {"topics": "Ord*"}, 422),
        ("PUT", "/sql/rights/group:99", {"topics": None}, 404),
        ("DELETE", "/sql/rights/nobody", None, 404),
    ],
)
def test_invalid_input_is_rejected(method, path, body, status, programs, lake) -> None:
    refused = programs.admin.ask(method, path.format(query=lake.pk), body)

    assert refused.status_code == status, refused.content
    assert Group.objects.exists()
    assert not Entry.objects.filter(outcome="done").exists()
