"""Consumer offsets: the preview of a reset equals its effect."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core import signing
from django.urls import reverse
from hypothesis import HealthCheck, given, settings, strategies as st

from console.broker.offsets.plan import Mode, PlanError, ResetRequest, make_plan
from console.broker.offsets.reset_progress import QueueFollowing
from console.gateway.answers import Member, TopicQueue
from console.gateway.fakes.broker import BROKER_NAME, FakeBroker, FakeQueue
from console.gateway.fakes.groups import FakeGroups
from console.gateway.fakes.offsets import FakeOffsets
from console.gateway.fakes.topics import FakeTopics
from console.lib.stored import BrokerQueue
from console.people.audit.models import Entry

pytestmark = pytest.mark.django_db


@pytest.fixture
def subject(brokers: FakeBroker) -> FakeBroker:
    """An offline group at 5 of 3..13 in queue 0, without an offset in queue 1."""
    brokers.add_topic("Orders", queue_nums=2)
    brokers.queues[TopicQueue("Orders", 0)] = FakeQueue(3, list(range(1_000, 11_000, 1_000)))
    brokers.put("Orders", 1, 5_000, 6_000)
    brokers.add_group("billing")
    brokers.offsets["billing", "Orders", 0] = 5
    return brokers


def plan(broker: FakeBroker, mode: Mode, **values: Any):
    reset_request = ResetRequest("billing", "Orders", mode, **values)
    return make_plan(FakeTopics(broker), FakeGroups(broker), FakeOffsets(broker), reset_request)


@pytest.mark.parametrize(
    ("mode", "values", "new"),
    [
        (Mode.EARLIEST, {}, [3, 0]),
        (Mode.LATEST, {}, [13, 2]),
        (Mode.TIMESTAMP, {"timestamp_ms": 5_500}, [8, 1]),
        (Mode.OFFSET, {"offset": 7}, [7, 2]),
        (Mode.OFFSET, {"offset": 0}, [3, 0]),
    ],
)
def test_each_mode_finds_its_offsets_within_the_retained_range(subject, mode, values, new) -> None:
    assert [move.new for move in plan(subject, mode, **values).moves] == new


def test_a_shift_starts_at_the_groups_offset(subject) -> None:
    subject.offsets["billing", "Orders", 1] = 2

    back = plan(subject, Mode.SHIFT, shift=-1)
    far = plan(subject, Mode.SHIFT, shift=100)

    assert [move.new for move in back.moves] == [4, 1]
    assert [move.new for move in far.moves] == [13, 2]
    assert all(move.is_bounded for move in far.moves)


def test_a_shift_without_an_offset_is_rejected(subject) -> None:
    with pytest.raises(PlanError, match="Queue 1 has no consumer offset"):
        plan(subject, Mode.SHIFT, shift=-1)


def test_a_plan_counts_repeated_and_skipped_messages(subject) -> None:
    earliest = plan(subject, Mode.EARLIEST)
    latest = plan(subject, Mode.LATEST)

    assert (earliest.redelivered, earliest.skipped) == (2, 0)
    assert (latest.redelivered, latest.skipped) == (0, 8)
    assert earliest.moves[1].redelivered is None  # unknown, not 0


def test_expired_messages_are_neither_redelivered_nor_skipped(subject) -> None:
    subject.offsets["billing", "Orders", 0] = 1

    move = plan(subject, Mode.OFFSET, offset=4).moves[0]

    assert (move.redelivered, move.skipped) == (0, 1)


def come_online(broker: FakeBroker) -> None:
    broker.members["billing"] = [Member("a", "127.0.0.1:1", "JAVA", 407, (BROKER_NAME,))]


def test_members_move_to_an_offset_of_one_queue(actors, subject) -> None:
    come_online(subject)
    token = token_of(preview(actors, mode="offset", offset=9, queue="broker-a:0"))

    actors.admin.post(reverse("offsets:apply"), {"token": token})

    assert subject.moves == [("billing", "Orders", {BrokerQueue("broker-a", 0): 9})]
    assert not subject.resets


def test_members_are_reset_by_time_if_every_broker_can_notify_them(actors, subject) -> None:
    come_online(subject)

    actors.admin.post(reverse("offsets:apply"), {"token": token_of(preview(actors))})

    assert subject.resets == [("billing", "Orders", 0)]
    assert not subject.moves


def test_a_group_is_moved_to_another_ones_offset(subject) -> None:
    subject.add_group("audit")
    subject.offsets["audit", "Orders", 0] = 11

    moves = plan(subject, Mode.COPY, source="audit").moves

    assert [(move.queue.queue_id, move.new, move.skipped) for move in moves] == [(0, 11, 6)]


@pytest.mark.parametrize("source", ["billing", "nope"])
def test_only_another_group_can_be_copied_from(source, subject) -> None:
    with pytest.raises(PlanError, match="group to copy from"):
        plan(subject, Mode.COPY, source=source)


def test_a_group_without_an_offset_there_cannot_be_copied_from(subject) -> None:
    subject.add_group("audit")

    with pytest.raises(PlanError, match="no consumer offsets in these queues"):
        plan(subject, Mode.COPY, source="audit")


@pytest.mark.parametrize(
    ("old", "target", "now", "age_ms", "state"),
    [
        (5, 9, 5, 1_000, "waiting"),
        (5, 9, 9, 1_000, "there"),
        (5, 9, 30, 1_000, "there"),
        (9, 3, 9, 1_000, "waiting"),
        (9, 3, 10, 15_000, "waiting"),
        (9, 3, 4, 1_000, "there"),
        (9, 3, 12, 25_000, "passed"),
        (None, 3, None, 1_000, "waiting"),
        (None, 3, 0, 1_000, "there"),
        (4, 4, 4, 0, "there"),
    ],
)
def test_members_have_followed_when_their_offsets_show_it(old, target, now, age_ms, state) -> None:
    queue = QueueFollowing(BrokerQueue("broker-a", 0), old, target, now, age_ms)

    assert queue.state == state


def test_a_reset_of_members_is_watched_until_they_have_followed(actors, subject) -> None:
    come_online(subject)
    token = token_of(preview(actors, mode="offset", offset=9, queue="broker-a:0"))
    answer = actors.admin.post(reverse("offsets:apply"), {"token": token})
    entry = Entry.objects.get()
    watching = reverse("offsets:following", args=[entry.pk])
    subject.offsets["billing", "Orders", 0] = 5  # the member hasn't noticed yet
    done = actors.admin.get(answer["location"])

    waiting = actors.reader.get(watching).text
    subject.offsets["billing", "Orders", 0] = 10
    there = actors.reader.get(watching).text

    assert 'id="following"' in done.text
    assert "waiting for 1 queue" in waiting
    assert watching in waiting
    assert "all consumers moved" in there
    assert watching not in there


def test_a_member_that_has_followed_once_has_followed_when_it_catches_up(
    actors, subject, monkeypatch
) -> None:
    come_online(subject)
    for queue, offset in ((0, 9), (1, 2)):
        subject.offsets["billing", "Orders", queue] = offset
    actors.admin.post(reverse("offsets:apply"), {"token": token_of(preview(actors))})
    entry = Entry.objects.get()
    assert len(entry.after) == 2
    watching = reverse("offsets:following", args=[entry.pk])
    subject.offsets["billing", "Orders", 0] = 3
    subject.offsets["billing", "Orders", 1] = 2  # unchanged
    assert "waiting for 1 queue" in actors.reader.get(watching).text
    subject.offsets["billing", "Orders", 0] = 13

    assert "waiting for 1 queue" in actors.reader.get(watching).text
    monkeypatch.setattr("console.broker.offsets.reset_progress.FOLLOWED_MS_MAX", -1)
    later = actors.reader.get(watching).text

    assert "1 queue is past its old offset" in later
    assert "all consumers moved" not in later
    subject.offsets["billing", "Orders", 1] = 1
    assert "all consumers moved" in actors.reader.get(watching).text


def preview(actors, **data: object):
    query = {"group": "billing", "topic": "Orders", "mode": "earliest"} | data
    return actors.admin.get(reverse("offsets:preview"), query)


def token_of(response) -> str:
    found = re.search(r'name="token" value="([^"]+)"', response.content.decode())
    assert found
    return found[1]


def test_looking_at_a_preview_changes_nothing(actors, subject) -> None:
    response = preview(actors)

    assert response.status_code == 200
    assert subject.offsets == {("billing", "Orders", 0): 5}
    assert not Entry.objects.exists()


def test_the_previewed_changes_are_the_applied_ones(actors, subject) -> None:
    response = actors.admin.post(
        reverse("offsets:apply"), {"token": token_of(preview(actors))}, follow=True
    )

    assert "was reset in 2 queues" in response.content.decode()
    assert subject.offsets == {("billing", "Orders", 0): 3, ("billing", "Orders", 1): 0}
    entry = Entry.objects.get()
    assert entry.before == {"broker-a:0": "5", "broker-a:1": None}
    assert entry.after == {"broker-a:0": "3", "broker-a:1": "0"}
    assert entry.outcome == "done"


def test_one_queue_can_be_moved_alone(actors, subject) -> None:
    token = token_of(preview(actors, mode="offset", offset=9, queue="broker-a:0"))

    actors.admin.post(reverse("offsets:apply"), {"token": token})

    assert subject.offsets == {("billing", "Orders", 0): 9}


def test_offsets_changed_since_the_preview_are_left_alone(actors, subject) -> None:
    token = token_of(preview(actors))
    subject.offsets["billing", "Orders", 0] = 6

    response = actors.admin.post(reverse("offsets:apply"), {"token": token}, follow=True)

    assert "Offsets changed after the preview" in response.content.decode()
    assert subject.offsets["billing", "Orders", 0] == 6


def test_a_member_that_joined_after_the_preview_stops_the_reset(actors, subject) -> None:
    token = token_of(preview(actors))
    subject.members["billing"] = [Member("a", "127.0.0.1:1", "JAVA", 407, (BROKER_NAME,))]

    response = actors.admin.post(reverse("offsets:apply"), {"token": token}, follow=True)

    assert "Consumers connected after the preview" in response.content.decode()
    assert subject.offsets["billing", "Orders", 0] == 5


def test_an_online_group_is_reset_through_the_broker(actors, subject) -> None:
    subject.members["billing"] = [Member("a", "127.0.0.1:1", "JAVA", 407, (BROKER_NAME,))]
    token = token_of(preview(actors, mode="latest"))
    subject.put("Orders", 1, 7_000)  # one more arrives before the click

    actors.admin.post(reverse("offsets:apply"), {"token": token})

    assert subject.resets == [("billing", "Orders", -1)]
    assert Entry.objects.get().after == {"broker-a:0": "13", "broker-a:1": "3"}


def test_a_reset_can_be_undone_through_its_own_preview(actors, subject) -> None:
    actors.admin.post(reverse("offsets:apply"), {"token": token_of(preview(actors))})
    entry = Entry.objects.get()
    undo = reverse("offsets:restore", args=[entry.pk])
    assert undo in actors.admin.get(reverse("audit:list")).content.decode()

    shown = actors.admin.get(undo)
    assert subject.offsets["billing", "Orders", 0] == 3
    actors.admin.post(reverse("offsets:apply"), {"token": token_of(shown)})

    assert subject.offsets["billing", "Orders", 0] == 5
    assert subject.offsets["billing", "Orders", 1] == 0  # had none before: unchanged
    assert Entry.objects.count() == 2


def test_a_reset_is_undone_while_members_are_connected(actors, subject) -> None:
    come_online(subject)
    actors.admin.post(reverse("offsets:apply"), {"token": token_of(preview(actors))})
    subject.offsets["billing", "Orders", 0] = 11  # they have read on
    undo = reverse("offsets:restore", args=[Entry.objects.get().pk])

    shown = actors.admin.post(undo)

    assert subject.moves == []
    assert "Offsets have changed since that reset" in shown.text
    assert "Messages redelivered" in shown.text
    actors.admin.post(reverse("offsets:apply"), {"token": token_of(shown)})
    assert subject.moves == [("billing", "Orders", {BrokerQueue("broker-a", 0): 5})]


def test_only_a_completed_reset_can_be_undone(actors, subject) -> None:
    entry = Entry.objects.create(actor_name="ada", action="topic.create", subject="Orders")

    undo = reverse("offsets:restore", args=[entry.pk])

    assert actors.admin.get(undo).status_code == 404


@pytest.mark.parametrize("token", ["", "nonsense", signing.dumps({"group": "billing"}, salt="x")])
def test_a_foreign_plan_is_rejected(token, actors, subject) -> None:
    response = actors.admin.post(reverse("offsets:apply"), {"token": token}, follow=True)

    assert "nothing was changed" in response.content.decode()
    assert subject.offsets == {("billing", "Orders", 0): 5}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"mode": "timestamp"}, "Enter a time."),
        ({"mode": "timestamp", "at": "yesterday"}, "Enter a valid date/time."),
        ({"mode": "offset"}, "Enter a number."),
        ({"mode": "offset", "offset": "-1"}, "greater than or equal to 0"),
        ({"mode": "offset", "offset": str(2**63)}, "less than or equal to"),
        ({"mode": "shift"}, "Enter a number."),
        ({"mode": "copy"}, "Choose a group."),
        ({"mode": "copy", "source": "nope"}, "Choose the group to copy from"),
        ({"mode": "sideways"}, "Select a valid choice"),
        ({"queue": "broker-a:7"}, "Select a valid choice"),
    ],
)
def test_an_invalid_request_is_rejected_in_the_form(data, sentence, actors, subject) -> None:
    html = preview(actors, **data).content.decode()

    assert sentence in html
    assert 'name="token"' not in html


def test_a_time_without_a_script_is_read_as_utc(actors, subject) -> None:
    html = preview(actors, mode="timestamp", at="1970-01-01T00:00:05").content.decode()

    assert 'name="token"' in html
    assert "<strong>7</strong>" in html


def test_a_missing_topic_is_reported_as_missing(actors, subject) -> None:
    response = preview(actors, topic="Nope")

    assert response.status_code == 404
    assert "topic[Nope] not exist" in response.content.decode()


def test_a_read_only_user_sees_offsets_without_the_reset(actors, subject) -> None:
    query = {"group": "billing", "topic": "Orders"}
    html = actors.reader.get(reverse("offsets:index"), query).content.decode()

    assert "never committed an offset in this queue" in html
    assert reverse("offsets:preview") not in html


def test_an_unknown_group_is_reported_as_unknown(actors, subject) -> None:
    html = actors.reader.get(reverse("offsets:index"), {"group": "nope"}).content.decode()

    assert "no group named nope." in html


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    ends=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=4),
    old=st.lists(st.none() | st.integers(0, 150), min_size=4, max_size=4),
    mode=st.sampled_from([Mode.EARLIEST, Mode.LATEST, Mode.TIMESTAMP, Mode.OFFSET, Mode.COPY]),
    wished=st.integers(0, 200),
    is_online=st.booleans(),
)
def test_a_resets_result_equals_its_preview(ends, old, mode, wished, is_online) -> None:
    broker = FakeBroker()
    broker.add_topic("Orders", queue_nums=len(ends))
    broker.add_group("billing")
    for queue_id, (min_offset, length) in enumerate(ends):
        broker.queues[TopicQueue("Orders", queue_id)] = FakeQueue(min_offset, list(range(length)))
        if old[queue_id] is not None:
            broker.offsets["billing", "Orders", queue_id] = old[queue_id]
        broker.offsets["audit", "Orders", queue_id] = wished
    if is_online:
        come_online(broker)

    made = plan(broker, mode, timestamp_ms=wished, offset=wished, source="audit")
    targets = {move.queue: move.new for move in made.moves}
    if is_online:
        FakeOffsets(broker).move_online("billing", "Orders", targets)
    else:
        FakeOffsets(broker).commit("billing", "Orders", targets)

    again = plan(broker, mode, timestamp_ms=wished, offset=wished, source="audit")
    assert again.is_idle
    assert (again.redelivered, again.skipped) == (0, 0)
    for move in made.moves:
        assert move.min_offset <= move.new <= move.max_offset
        assert not (move.redelivered and move.skipped)


def test_no_destination_is_preselected(actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    brokers.offsets["billing", "Orders", 0] = 0

    page = actors.admin.get("/offsets/", {"group": "billing", "topic": "Orders"}).text
    html = actors.admin.get("/offsets/preview/", {"group": "billing", "topic": "Orders"})

    assert 'name="mode"' in page
    assert "checked" not in page.partition('name="mode"')[2]
    assert 'name="token"' not in html.text


def test_each_queue_of_a_table_and_a_plan_is_named_with_its_broker(actors, brokers) -> None:
    """The first cell is the title of a card on a phone: cards must differ."""
    brokers.add_topic("Orders", queue_nums=2)
    brokers.add_group("billing")
    brokers.offsets["billing", "Orders", 0] = 0
    fields = {"group": "billing", "topic": "Orders"}

    pages = [
        actors.operator.get(reverse("offsets:index"), fields).content.decode(),
        actors.operator.get(
            reverse("offsets:preview"), fields | {"mode": "earliest"}
        ).content.decode(),
    ]

    for page in pages:
        for number in range(2):
            assert f'<td class="table__name nowrap">broker-a · {number}</td>' in page
