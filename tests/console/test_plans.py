"""Changes of topics and groups: previewed, applied and undone."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest
from django.core import signing
from django.core.cache import cache
from django.urls import reverse

from console.broker.configs.plan import Plan
from console.gateway.access import gateway
from console.gateway.answers import GroupConfig, Member, TopicConfig
from console.gateway.errors import RequestFailedError
from console.gateway.fakes.broker import ADDRESS, BROKER_NAME, FakeBroker
from console.people.audit.models import Entry
from tests.console.plans import applied, token_on
from tests.console.test_topics import new_topic

if TYPE_CHECKING:
    from console.broker.configs.plan import Line, State
    from tests.console.conftest import Actors

pytestmark = pytest.mark.django_db

EDIT = "/topics/t/Orders/edit/"
WIDE = new_topic(write_queue_nums=8, read_queue_nums=8)
READ_ONLY = new_topic(perm=4)


@pytest.fixture(autouse=True)
def forget() -> None:
    cache.clear()


@pytest.fixture
def orders(brokers: FakeBroker) -> FakeBroker:
    brokers.add_topic("Orders", queue_nums=4)
    return brokers


def queues(broker: FakeBroker) -> int:
    return broker.topic_configs["Orders"].write_queue_nums


def undo_of(entry: Entry) -> str:
    namespace = f"{entry.action.partition('.')[0]}s"
    return reverse(f"{namespace}:undo", args=[entry.pk])


def last() -> Entry:
    entry = Entry.objects.order_by("-pk").first()
    assert entry is not None
    return entry


def state(response: Any) -> list[tuple[str, str | None, str | None]]:
    """Return label, now and then of each line of a plan."""
    return [
        (line.label, line.now, line.wanted)
        for _part, lines in response.context["parts"]
        for line in lines
    ]


def test_a_submitted_form_only_previews_each_value_before_and_after(
    actors: Actors, orders: FakeBroker
) -> None:
    answer = actors.admin.post(EDIT, WIDE | {"perm": 4})

    assert state(answer) == [
        ("Read queues", "4", "8"),
        ("Write queues", "4", "8"),
        ("Permission", "Read and write", "Read only: messages from producers are rejected"),
    ]
    assert queues(orders) == 4
    assert not Entry.objects.exists()


def test_a_new_topic_is_shown_as_new_on_its_brokers(actors: Actors, brokers: FakeBroker) -> None:
    answer = actors.admin.post(reverse("topics:create"), new_topic())

    assert ("Write queues", None, "4") in state(answer)
    assert "added" in answer.content.decode()
    assert "Orders" not in brokers.topic_configs


def test_an_existing_entry_cannot_be_applied(actors: Actors, orders: FakeBroker) -> None:
    answer = actors.admin.post(EDIT, new_topic())

    assert "No changes" in answer.content.decode()
    assert ">Apply<" not in answer.content.decode()


def test_brokers_with_the_same_difference_share_a_section() -> None:
    old, new = {"perm": 6}, {"perm": 4}
    now: State = {"a": old, "b": new, "c": old}
    target: State = {"a": new, "b": new, "c": new}

    plan = Plan("Orders", now, now, target, kind="topic")

    assert [part.brokers for part in plan.parts] == [("a", "c"), ("b",)]


def test_a_plan_leads_back_to_the_filled_in_form(actors: Actors, orders: FakeBroker) -> None:
    plan = actors.admin.post(EDIT, WIDE)
    entries: dict[str, list[str]] = {}
    for name, value in plan.context["entries"]:
        entries.setdefault(name, []).append(value)

    form = actors.admin.post(EDIT, entries | {"back": "on"})

    assert 'value="8"' in form.content.decode()
    assert "Planned changes" not in form.content.decode()
    assert queues(orders) == 4


def test_a_change_made_after_the_preview_is_not_overwritten(
    actors: Actors, orders: FakeBroker
) -> None:
    token = token_on(actors.admin.post(EDIT, WIDE))
    orders.topic_configs["Orders"] = replace(orders.topic_configs["Orders"], perm=4)

    refused = actors.admin.post(EDIT, {"token": token})

    assert refused.status_code == 409
    assert [(each.seen, each.now, each.wanted) for each in line_of(refused, "Permission")] == [
        ("Read and write", "Read only: messages from producers are rejected", "Read and write")
    ]
    assert orders.topic_configs["Orders"].perm == 4
    assert not Entry.objects.exists()
    # Both were shown, so the user has confirmed them.
    assert actors.admin.post(EDIT, {"token": token_on(refused)}).status_code == 302
    assert (orders.topic_configs["Orders"].perm, queues(orders)) == (6, 8)


def line_of(response: Any, label: str) -> list[Line]:
    return [
        line for _part, lines in response.context["parts"] for line in lines if line.label == label
    ]


def test_a_name_taken_after_the_preview_is_not_overwritten(
    actors: Actors, brokers: FakeBroker
) -> None:
    token = token_on(actors.admin.post(reverse("topics:create"), new_topic()))
    brokers.add_topic("Orders", queue_nums=2)

    assert actors.admin.post(reverse("topics:create"), {"token": token}).status_code == 409
    assert queues(brokers) == 2


def test_a_form_with_an_error_remembers_its_base_version(
    actors: Actors, orders: FakeBroker
) -> None:
    seen = actors.admin.get(EDIT).context["form"]["seen"].value()
    orders.topic_configs["Orders"] = replace(orders.topic_configs["Orders"], perm=4)
    wrong = actors.admin.post(EDIT, WIDE | {"write_queue_nums": 0, "seen": seen})

    kept = wrong.context["form"]["seen"].value()
    answer = actors.admin.post(EDIT, WIDE | {"seen": kept})

    assert answer.status_code == 409


@pytest.mark.parametrize("token", ["", "nonsense", signing.dumps({"name": "Orders"}, salt="x")])
def test_a_foreign_plan_is_rejected(token: str, actors: Actors, orders: FakeBroker) -> None:
    answer = actors.admin.post(EDIT, {"token": token}, follow=True)

    assert "nothing was changed" in answer.content.decode()
    assert queues(orders) == 4


def test_a_plan_of_another_topic_is_rejected(actors: Actors, orders: FakeBroker) -> None:
    orders.add_topic("Other", queue_nums=4)
    token = token_on(actors.admin.post(EDIT, WIDE))

    answer = actors.admin.post(reverse("topics:edit", args=["Other"]), {"token": token})

    assert answer.status_code == 302
    assert queues(orders) == 4


def test_the_brokers_rejections_are_reported_beside_the_remaining_changes(
    actors: Actors, orders: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(config: TopicConfig, broker_names: list[str]) -> None:
        raise RequestFailedError(ADDRESS, 1, "no more queues")

    monkeypatch.setattr(gateway().topics, "save", refuse)

    answer = applied(actors.admin, EDIT, WIDE)

    assert answer.status_code == 422
    assert "no more queues" in answer.content.decode()
    assert ("Write queues", "4", "8") in state(answer)
    assert last().outcome == "failed"


def test_a_change_offers_undo_which_restores_the_former_values(
    actors: Actors, orders: FakeBroker
) -> None:
    applied(actors.admin, EDIT, READ_ONLY)
    page = actors.admin.get(reverse("topics:detail", args=["Orders"])).content.decode()
    assert f'action="{undo_of(last())}"' in page

    actors.admin.post(undo_of(last()))

    assert orders.topic_configs["Orders"].perm == 6
    assert (last().action, last().before, last().remark) == (
        "topic.update",
        {BROKER_NAME: asdict(TopicConfig("Orders", 4, 4, 4))},
        f"Undoes entry {last().pk - 1}.",
    )
    # An undo is a change like any other.
    actors.admin.post(undo_of(last()))
    assert orders.topic_configs["Orders"].perm == 4


def test_looking_at_an_undo_changes_nothing(actors: Actors, orders: FakeBroker) -> None:
    applied(actors.admin, EDIT, READ_ONLY)

    shown = actors.admin.get(undo_of(last()))

    assert state(shown) == [
        ("Permission", "Read only: messages from producers are rejected", "Read and write"),
    ]
    assert orders.topic_configs["Orders"].perm == 4
    actors.admin.post(undo_of(last()), {"token": token_on(shown)})
    assert orders.topic_configs["Orders"].perm == 6


def test_a_later_change_by_someone_else_is_not_undone(actors: Actors, orders: FakeBroker) -> None:
    applied(actors.admin, EDIT, WIDE)
    orders.topic_configs["Orders"] = replace(orders.topic_configs["Orders"], write_queue_nums=16)

    answer = actors.admin.post(undo_of(last()))

    assert answer.status_code == 409
    (line,) = line_of(answer, "Write queues")
    assert (line.seen, line.now, line.wanted) == ("8", "16", "4")
    assert queues(orders) == 16


def test_undo_asks_the_same_questions_as_the_change(actors: Actors, orders: FakeBroker) -> None:
    applied(actors.admin, EDIT, WIDE)
    orders.put("Orders", 7, 1_000)

    answer = actors.admin.post(undo_of(last()))

    assert answer.status_code == 422
    assert "Producers use 8 queues" in answer.content.decode()
    assert queues(orders) == 8
    accepted = {"token": token_on(answer), "accepted": "on"}
    assert actors.admin.post(undo_of(last()), accepted).status_code == 302
    assert queues(orders) == 4


def test_a_created_topic_is_removed_while_it_is_empty(actors: Actors, brokers: FakeBroker) -> None:
    applied(actors.admin, reverse("topics:create"), new_topic())
    made = last()
    brokers.put("Orders", 0, 1_000)

    refused = actors.admin.post(undo_of(made))

    assert "now holds 1 message" in refused.content.decode()
    assert "Orders" in brokers.topic_configs
    brokers.queues.clear()
    actors.admin.post(undo_of(made))
    assert "Orders" not in brokers.topic_configs
    assert last().action == "topic.delete"


def test_a_deleted_topic_is_recreated_with_its_settings(actors: Actors, orders: FakeBroker) -> None:
    before = orders.topic_configs["Orders"]
    actors.admin.post(reverse("topics:delete", args=["Orders"]), {"name": "Orders"})
    assert not orders.topic_configs

    actors.admin.post(undo_of(last()))

    assert orders.topic_configs == {"Orders": before}
    assert last().action == "topic.create"


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_deleted_group_returns_with_its_offsets(
    is_removed: bool, actors: Actors, orders: FakeBroker
) -> None:
    orders.add_group("billing")
    for queue_id in (0, 1):
        orders.put("Orders", queue_id, *range(9))
    orders.offsets |= {("billing", "Orders", 0): 3, ("billing", "Orders", 1): 4}
    offsets = dict(orders.offsets)
    data = {"remove_offset": "on"} if is_removed else {}
    actors.admin.post(reverse("groups:delete", args=["billing"]), data)
    assert "billing" not in orders.group_configs
    assert bool(orders.offsets) == (not is_removed)

    actors.admin.post(undo_of(last()))

    assert orders.group_configs["billing"] == GroupConfig("billing")
    assert orders.offsets == offsets


def test_offsets_committed_since_are_not_reset(actors: Actors, orders: FakeBroker) -> None:
    orders.add_group("billing")
    for queue_id in (0, 1):
        orders.put("Orders", queue_id, *range(9))
    orders.offsets |= {("billing", "Orders", 0): 3, ("billing", "Orders", 1): 4}
    url = reverse("groups:delete", args=["billing"])
    actors.admin.post(url, {"remove_offset": "on"})
    orders.offsets["billing", "Orders", 0] = 9

    actors.admin.post(undo_of(last()))

    assert orders.offsets == {("billing", "Orders", 0): 9, ("billing", "Orders", 1): 4}


def test_a_group_that_now_has_members_is_not_deleted(actors: Actors, brokers: FakeBroker) -> None:
    brokers.add_group("billing")
    entry = Entry.objects.create(
        action="group.create",
        subject="billing",
        after={BROKER_NAME: asdict(GroupConfig("billing"))},
        outcome=Entry.Outcome.DONE,
    )
    brokers.members["billing"] = [Member("a", "127.0.0.1:1", "JAVA", 407, (BROKER_NAME,))]

    answer = actors.admin.post(undo_of(entry))

    assert "has connected consumers" in answer.content.decode()
    assert "billing" in brokers.group_configs


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ("topic.create", None, {"topic": "Orders", "perm": 6, "brokers": [BROKER_NAME]}),
        ("topic.update", {"old": 1}, {BROKER_NAME: asdict(TopicConfig("Orders", 4, 4, 6))}),
    ],
)
def test_an_entry_with_too_little_data_undoes_nothing(
    action: str, before: object, after: object, actors: Actors, orders: FakeBroker
) -> None:
    entry = Entry.objects.create(
        action=action, subject="Orders", before=before, after=after, outcome=Entry.Outcome.DONE
    )

    answer = actors.admin.post(undo_of(entry))

    assert answer.status_code == 404
    assert "contain enough detail to undo" in answer.content.decode()
    assert queues(orders) == 4


def test_a_failed_change_cannot_be_undone(actors: Actors, orders: FakeBroker) -> None:
    entry = Entry.objects.create(
        action="topic.create", subject="Orders", outcome=Entry.Outcome.FAILED
    )

    assert actors.admin.post(undo_of(entry)).status_code == 404
    assert undo_of(entry) not in actors.admin.get(reverse("audit:list")).content.decode()
