"""Topics, groups, offsets and keys by the API: plans first, then the same effects as the pages."""

from __future__ import annotations

import pytest

from console.accounts.models import CustomRole
from console.gateway.answers import BrokerNode
from console.people.audit.models import Entry

pytestmark = pytest.mark.django_db

SLAVE = BrokerNode("DefaultCluster", "broker-a", 1, "127.0.0.1:10931")


@pytest.fixture
def known(brokers):
    brokers.slaves.append(SLAVE)
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    brokers.put("Orders", 0, 1_000)
    brokers.offsets["billing", "Orders", 0] = 1
    return brokers


# Method, address, body; the audit action.
WRITES = [
    ("POST", "/topics", {"topic": "New"}, "topic.create"),
    ("PATCH", "/topics/Orders", {"perm": 4}, "topic.update"),
    ("POST", "/topics/Orders/purge", None, "topic.purge"),
    ("DELETE", "/topics/Orders", None, "topic.delete"),
    ("POST", "/groups", {"group": "new", "retry_max_times": 3}, "group.create"),
    ("PATCH", "/groups/billing", {"retry_max_times": 3}, "group.update"),
    ("DELETE", "/groups/billing?remove_offset=true", None, "group.delete"),
    (
        "POST",
        "/offsets/reset",
        {"group": "billing", "topic": "Orders", "mode": "earliest"},
        "offset.reset",
    ),
    (
        "PATCH",
        "/brokers/broker-a/0/configuration/transactionCheckMax",
        {"value": 30},
        "broker.configure",
    ),
    ("POST", "/brokers/broker-a/1/promote?force=true", None, "broker.promote"),
    (
        "POST",
        "/brokers/confirm",
        {"broker_name": "broker-a", "address": "127.0.0.1:10911"},
        "broker.confirm",
    ),
]
IDS = [f"{method} {path}" for method, path, _body, _action in WRITES]


@pytest.mark.parametrize(("method", "path", "body", "action"), WRITES, ids=IDS)
def test_a_change_is_previewed_then_applied_and_recorded(
    method, path, body, action, programs, known
) -> None:
    if action != "broker.confirm":
        sign = "&" if "?" in path else "?"
        shown = programs.admin.ask(method, f"{path}{sign}dry_run=true", body)
        assert shown.status_code == 200, shown.content
        assert shown.json()["dry_run"] is True
        assert not Entry.objects.exists()

    done = programs.admin.ask(method, path, body)

    assert done.status_code == 200, done.content
    entry = Entry.objects.get()
    assert (entry.action, entry.outcome) == (action, "done")
    assert entry.token == programs.admin.token.name
    assert done.json()["entry"] in (entry.pk, None)


def test_the_result_matches_the_request(programs, known) -> None:
    body = {"topic": "New", "write_queue_nums": 3, "read_queue_nums": 5, "order": True}

    programs.operator.post("/topics", body)

    config = known.topic_configs["New"]
    assert (config.write_queue_nums, config.read_queue_nums, config.order) == (3, 5, True)


def test_a_change_leaves_unnamed_values_alone(programs, known) -> None:
    programs.operator.post("/topics", {"topic": "New", "order": True, "write_queue_nums": 3})

    programs.operator.patch("/topics/New", {"perm": 4})

    config = known.topic_configs["New"]
    assert (config.perm, config.order, config.write_queue_nums) == (4, True, 3)


def test_repeating_it_does_nothing(programs, known) -> None:
    programs.operator.patch("/topics/Orders", {"perm": 4})
    again = programs.operator.patch("/topics/Orders", {"perm": 4})

    assert again.json()["entry"] is None
    assert Entry.objects.count() == 1


def test_an_objection_must_be_accepted(programs, known) -> None:
    known.add_topic("Wide", queue_nums=8)
    known.put("Wide", 7, 1_000)
    body = {"write_queue_nums": 1, "read_queue_nums": 1}

    plan = programs.operator.patch("/topics/Wide?dry_run=true", body).json()
    refused = programs.operator.patch("/topics/Wide", body)
    done = programs.operator.patch("/topics/Wide?accept=true", body)

    assert plan["objection"]
    assert refused.status_code == 409
    assert refused.json()["objection"] == plan["objection"] == refused.json()["detail"]
    assert done.status_code == 200


def test_a_change_planned_on_a_different_state_is_rejected(programs, known) -> None:
    seen = programs.operator.patch("/topics/Orders?dry_run=true", {"perm": 4}).json()["seen"]
    programs.admin.patch("/topics/Orders", {"perm": 2})

    late = programs.operator.patch(f"/topics/Orders?seen={seen}", {"perm": 4})
    forged = programs.operator.patch("/topics/Orders?seen=x", {"perm": 4})

    assert late.status_code == 409
    assert late.json()["now"] != late.json()["seen"]
    assert forged.status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/topics", {"topic": "Orders"}, 422),
        ("POST", "/topics", {"topic": "a b"}, 422),
        ("POST", "/topics", {"topic": "New", "queues": 4}, 422),
        ("POST", "/topics", {"topic": "New", "broker_names": ["other"]}, 422),
        ("PATCH", "/topics/None", {"perm": 4}, 404),
        ("DELETE", "/topics/None", None, 404),
        ("POST", "/offsets/reset", {"group": "billing", "topic": "Orders"}, 422),
        ("POST", "/offsets/reset", {"group": "billing"}, 422),
        ("PATCH", "/brokers/broker-a/0/configuration/brokerName", {"value": "x"}, 404),
        ("POST", "/brokers/broker-a/0/promote", None, 409),
        ("POST", "/brokers/confirm", {"broker_name": "x", "address": "y"}, 409),
        ("POST", "/audit/99/undo", None, 404),
    ],
)
def test_invalid_input_is_rejected_and_changes_nothing(
    method, path, body, status, programs, known
) -> None:
    response = programs.admin.ask(method, path, body)

    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    assert not Entry.objects.exists()


@pytest.mark.parametrize(("method", "path", "body", "action"), WRITES, ids=IDS)
def test_a_viewer_changes_nothing(method, path, body, action, programs, known) -> None:
    for target in (path, f"{path}{'&' if '?' in path else '?'}dry_run=true"):
        response = programs.reader.ask(method, target, body)

        assert response.status_code == 403, response.content
    assert not Entry.objects.filter(action=action).exists()


def test_a_custom_role_limits_a_token_by_name(programs, known, reader_account) -> None:
    role = CustomRole.objects.create(name="shop", actions=["topic.change"], topics=["shop-*"])
    role.members.add(reader_account)

    mine = programs.reader.post("/topics", {"topic": "shop-orders"})
    others = programs.reader.post("/topics", {"topic": "Bills"})
    other = programs.reader.patch("/topics/Orders", {"perm": 4})

    assert [mine.status_code, others.status_code, other.status_code] == [200, 403, 403]
    assert "Bills" not in known.topic_configs


@pytest.mark.parametrize("number", [1, 5, 7], ids=lambda number: IDS[number])
def test_a_change_is_undone_by_its_entry(number, programs, known) -> None:
    method, path, body, _action = WRITES[number]

    def now() -> tuple[object, ...]:
        # A queue that had no offset keeps the new one.
        own = known.offsets["billing", "Orders", 0]
        return dict(known.topic_configs), dict(known.group_configs), own

    before = now()
    entry = programs.operator.ask(method, path, body).json()["entry"]

    plan = programs.operator.post(f"/audit/{entry}/undo?dry_run=true")
    undone = programs.operator.post(f"/audit/{entry}/undo")

    assert plan.json()["dry_run"] is True
    assert undone.status_code == 200, undone.content
    assert now() == before
    assert programs.reader.post(f"/audit/{entry}/undo").status_code == 403
