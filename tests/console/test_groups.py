"""Consumer groups: list, members, progress, configuration."""

from __future__ import annotations

import pytest
from django.urls import reverse

from broker_core.protocol import java_json
from console.broker.groups.progress import with_unread
from console.gateway.answers import (
    ConsumeProgress,
    Member,
    MessageQueue,
    QueueProgress,
    Subscription,
)
from console.gateway.errors import GatewayError
from console.gateway.fakes.groups import FakeGroups
from console.gateway.requests.running import read
from console.gateway.running import RunningInfo, RunningQueue, RunningTopic
from console.people.audit.models import Entry
from tests.console.api.conftest import Program
from tests.console.plans import applied

pytestmark = pytest.mark.django_db


def new_group(**changes: object) -> dict[str, object]:
    return {
        "group": "billing",
        "broker_names": ["broker-a"],
        "consume_enable": "on",
        "consume_broadcast_enable": "on",
        "consume_from_min_enable": "on",
        "notify_consumer_ids_changed_enable": "on",
        "retry_max_times": 16,
        "retry_queue_nums": 1,
        "broker_id": 0,
        "which_broker_when_consume_slowly": 1,
    } | changes


def test_the_list_shows_online_and_lagging_groups(actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.add_group("shipping")
    brokers.offsets["shipping", "Orders", 0] = 1
    brokers.add_group("TOOLS_CONSUMER")

    html = actors.reader.get(reverse("groups:list")).content.decode()

    assert "online" in html
    assert "offline" in html
    assert "TOOLS_CONSUMER" not in html


def test_a_group_with_offsets_but_no_configuration_is_still_listed(actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.offsets["orphan", "Orders", 0] = 0

    html = actors.reader.get(reverse("groups:list")).content.decode()

    assert "orphan" in html
    assert "no configuration" in html


def test_a_group_page_shows_members_subscriptions_and_progress(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.offsets["billing", "Orders", 0] = 1

    html = actors.reader.get(reverse("groups:detail", args=["billing"])).content.decode()

    assert "billing@1" in html
    assert "127.0.0.1:50001" in html
    assert "TAG" in html
    assert "2 msg behind" in html
    assert "never committed an offset in this queue" in html  # queue 1


def test_a_group_page_has_one_subscriptions_table_that_members_replace(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    brokers.add_group("billing", online=True, topic="Orders")

    html = actors.reader.get(reverse("groups:detail", args=["billing"])).content.decode()
    page = actors.reader.get(reverse("groups:subscriptions", args=["billing"])).content.decode()

    assert html.count("</svg>Subscriptions</h2>") == html.count('id="subscriptions"') == 1
    assert 'id="subscriptions"' in page


def test_a_missing_group_is_not_found(actors, brokers) -> None:
    assert actors.reader.get(reverse("groups:detail", args=["nope"])).status_code == 404


def test_an_administrator_creates_a_group(actors, brokers) -> None:
    data = new_group(consume_enable="", retry_max_times=3)

    response = applied(actors.admin, reverse("groups:create"), data)

    assert response.status_code == 302
    config = brokers.group_configs["billing"]
    assert config.consume_enable is False
    assert config.consume_broadcast_enable is True
    assert config.retry_max_times == 3
    assert Entry.objects.get().action == "group.create"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"group": "a b"}, "Names can contain only letters"),
        ({"group": "x" * 249}, "at most 248 characters; this one has 249"),
        ({"group": "TOOLS_CONSUMER"}, "reserved"),
        ({"group": "taken"}, "A group with this name already exists."),
        ({"retry_max_times": -2}, "greater than or equal to -1"),
        ({"retry_queue_nums": 65}, "less than or equal to 64"),
    ],
)
def test_an_invalid_group_is_rejected_in_the_form(changes, sentence, actors, brokers) -> None:
    brokers.add_group("taken")

    response = actors.admin.post(reverse("groups:create"), new_group(**changes))

    assert response.status_code == 200
    assert sentence in response.content.decode()
    assert set(brokers.group_configs) == {"taken"}


def test_an_edit_records_before_and_after(actors, brokers) -> None:
    brokers.add_group("billing")

    url = reverse("groups:edit", args=["billing"])
    response = applied(actors.admin, url, new_group(retry_max_times=2))

    assert response.status_code == 302
    assert brokers.group_configs["billing"].retry_max_times == 2
    entry = Entry.objects.get()
    assert entry.before["broker-a"]["retry_max_times"] == 16
    assert entry.after["broker-a"]["retry_max_times"] == 2


def test_a_group_with_members_is_not_deleted(actors, brokers) -> None:
    brokers.add_group("billing", online=True)

    actors.admin.post(reverse("groups:delete", args=["billing"]), {"name": "billing"})

    assert "billing" in brokers.group_configs


def test_a_deleted_group_keeps_its_offsets_unless_they_are_deleted_too(actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    brokers.offsets["billing", "Orders", 0] = 0
    url = reverse("groups:delete", args=["billing"])

    actors.admin.post(url)
    assert "billing" not in brokers.group_configs
    assert brokers.offsets
    assert Entry.objects.get().before["offsets"][0]["offset"] == "0"

    actors.admin.post(url, {"name": "billing", "remove_offset": "on"})
    assert not brokers.offsets


def test_the_brokers_own_groups_are_out_of_reach(actors, brokers) -> None:
    brokers.add_group("TOOLS_CONSUMER")

    response = actors.admin.post(
        reverse("groups:delete", args=["TOOLS_CONSUMER"]), {"name": "TOOLS_CONSUMER"}
    )

    assert response.status_code == 403


def test_a_client_reports_its_version_by_name(actors, brokers) -> None:
    brokers.add_group("billing", online=True, topic="Orders")

    page = actors.reader.get(reverse("groups:detail", args=["billing"])).text

    assert "v4_9_7" in page
    assert ">407<" not in page


def test_an_uncommitted_offset_is_not_a_lag_of_zero(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.put("Orders", 1, 1, 2)
    brokers.add_group("billing", online=True, topic="Orders")

    page = actors.reader.get(reverse("groups:detail", args=["billing"])).text
    listed = actors.reader.get(reverse("groups:list")).text

    assert "The group hasn't committed an offset yet." in page
    assert "plus 5 retained where the group has never committed" in page
    assert "≤ 3" in page
    assert "The group hasn't committed an offset yet." in listed


def test_subscribed_topics_exist_before_the_first_offset(brokers) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing", online=True, topic="Orders")
    groups = FakeGroups(brokers)
    nothing = ConsumeProgress("billing", 0.0, (), 0)

    progress, ends = with_unread(nothing, groups.connections("billing"))

    assert [(row.topic, row.queue_id, row.lag) for row in progress.queues] == [("Orders", 0, None)]
    assert [end.message_count for end in ends.values()] == [3]


def row(queue_id: int, lag: int, last_ms: int | None) -> QueueProgress:
    return QueueProgress("Orders", "broker-a", queue_id, 10, 10 - lag, last_ms)


@pytest.mark.parametrize(
    ("queues", "caught_up_ms"),
    [
        ([(0, 9_000), (0, 8_000)], 9_000),
        ([(0, 9_000), (3, 5_000), (1, 6_000)], 5_000),
        ([(0, 9_000), (3, None)], None),
        ([], None),
    ],
)
def test_a_group_has_caught_up_as_far_as_its_slowest_queue(queues, caught_up_ms) -> None:
    rows = tuple(row(number, lag, last_ms) for number, (lag, last_ms) in enumerate(queues))

    assert ConsumeProgress("billing", 0.0, rows, 0).caught_up_ms == caught_up_ms


def test_an_offset_beyond_the_end_is_not_a_lag_and_is_labelled(
    actors, reader_account, brokers
) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing", topic="Orders")
    brokers.offsets["billing", "Orders", 0] = 50

    pages = [
        actors.reader.get(reverse("groups:list")),
        actors.reader.get(reverse("groups:detail", args=["billing"])),
        actors.reader.get(reverse("groups:queue", args=["billing", "broker-a", 0, "Orders"])),
        actors.reader.get(reverse("offsets:index"), {"group": "billing", "topic": "Orders"}),
        actors.reader.get(reverse("topics:detail", args=["Orders"])),
        actors.reader.get(reverse("overview:summary")),
    ]
    program = Program(reader_account)
    of_group = program.get("/groups/billing").json()
    of_topic = program.get("/offsets?group=billing&topic=Orders").json()

    for page in pages:
        assert page.status_code == 200
        assert "beyond the end" in page.content.decode()
        assert "0 msg behind" not in page.content.decode()
    for each in (of_group, of_topic):
        assert (each["lag"], each["is_beyond_end"]) == (None, True)
    [row] = FakeGroups(brokers).progress("billing").queues
    assert (row.lag, row.is_beyond_end) == (None, True)


def test_a_groups_pending_messages_are_shown_by_queue_unless_it_pulls(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.offsets["billing", "Orders", 0] = 3
    detail = reverse("groups:detail", args=["billing"])
    assert "Oldest lease" not in actors.reader.get(detail).text

    brokers.in_flight["billing", "Orders", 0] = 2
    queue = reverse("groups:queue", args=["billing", "broker-a", 0, "Orders"])

    for address in (detail, queue):
        page = actors.reader.get(address).text
        assert "In flight" in page
        assert "Oldest lease" in page


def two_members(brokers, *wishes: str) -> None:
    """Members billing@0, billing@1, … with tags of Orders; an empty tag means no subscription."""
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.members["billing"] = [
        Member(f"billing@{number}", "127.0.0.1:1", "JAVA", 407, ("broker-a",))
        for number in range(len(wishes))
    ]
    for number, wish in enumerate(wishes):
        target = (Subscription("Orders", "TAG", wish),) if wish else ()
        brokers.running[f"billing@{number}"] = RunningInfo(f"billing@{number}", {}, target, (), ())


@pytest.mark.parametrize(
    ("wishes", "is_mixed", "message"),
    [
        (("A", "A"), False, ["all match"]),
        (("A", "B", "A"), True, ["consumers differ", "billing@1", "skipped"]),
        (("A", ""), True, ["not subscribed", "billing@1"]),
    ],
)
def test_members_with_other_subscriptions_are_named(
    actors, brokers, wishes, is_mixed, message
) -> None:
    two_members(brokers, *wishes)

    part = actors.reader.get(reverse("groups:subscriptions", args=["billing"])).text

    assert ("consumers differ" in part) is is_mixed
    assert [text for text in message if text not in part] == []


def test_an_unresponsive_member_is_shown_as_silent(actors, brokers) -> None:
    two_members(brokers, "A", "A")
    brokers.running["billing@1"] = GatewayError("it took too long")

    part = actors.reader.get(reverse("groups:subscriptions", args=["billing"])).text

    assert "billing@1" in part
    assert "it took too long" in part
    assert "all match" in part


def test_a_member_reports_its_state_and_threads(actors, brokers) -> None:
    two_members(brokers, "A")
    info = RunningInfo(
        "billing@0",
        {"PROP_THREADPOOL_CORE_SIZE": "20"},
        (),
        (RunningQueue(MessageQueue("Orders", "broker-a", 3), 7, 12, 1, 2, False, True),),
        (RunningTopic("Orders", 1.5, 10.0, 0.5, 42),),
        "TID: 9 <script>",
    )
    brokers.running["billing@0"] = info
    url = reverse("groups:member", args=["billing"])

    page = actors.operator.get(url, {"client": "billing@0", "threads": "on"}).text
    without = actors.operator.get(url, {"client": "billing@0"}).text

    assert [text for text in ("broker-a:3", "dropped", "42", "20") if text not in page] == []
    assert "TID: 9 &lt;script&gt;" in page
    assert "TID: 9" not in without
    assert actors.reader.get(url, {"client": "billing@0"}).status_code == 403
    assert actors.operator.get(url, {"client": "nobody"}).status_code == 404


def test_a_java_clients_report_on_itself_can_be_read() -> None:
    body = (
        '{"jstack":"TID: 1","mqTable":{{"brokerName":"broker-a","queueId":1,"topic":"T"}:'
        '{"cachedMsgCount":3,"commitOffset":5,"droped":false,'
        '"lastConsumeTimestamp":9,"lastPullTimestamp":0,"locked":true}},"properties":{"a":"b"},'
        '"statusTable":{"T":{"consumeFailedMsgs":2,"consumeFailedTPS":0.1,"consumeOKTPS":4.5,'
        '"consumeRT":1.25}},"subscriptionSet":[{"expressionType":"TAG","subString":"x","topic":"T"}]}'
    )

    info = read("c", java_json.decode(body.encode()))

    assert info.queues == (
        RunningQueue(MessageQueue("T", "broker-a", 1), 5, 3, None, 9, True, False),
    )
    assert info.subscriptions == (Subscription("T", "TAG", "x"),)
    assert info.topics == (RunningTopic("T", 1.25, 4.5, 0.1, 2),)
    assert (info.threads, info.properties) == ("TID: 1", {"a": "b"})


def test_each_queue_of_a_group_is_named_with_its_broker(actors, brokers) -> None:
    """The first cell is the title of a card on a phone: cards must differ."""
    brokers.add_topic("Orders", queue_nums=3)
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.offsets["billing", "Orders", 0] = 0

    page = actors.reader.get(reverse("groups:detail", args=["billing"])).content.decode()

    assert [f">broker-a · {number}</a>" in page for number in range(3)] == [True] * 3
