"""Topics: list, status, create, change, delete."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from django.core.cache import cache
from django.urls import reverse

from console.broker.topics.rates import queue_rates
from console.broker.topics.retention import QUEUES_QUERIED_MAX, oldest_of
from console.gateway.access import gateway
from console.gateway.answers import QueueStatus, TopicConfig, TopicQueue
from console.gateway.errors import BrokerDownError, RequestFailedError
from console.gateway.fakes.topics import FakeTopics
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue
from console.observe.history.access import history_store
from console.observe.history.metrics import PUT, TOPIC, Column, Subject
from console.people.audit.models import Entry
from console.people.audit.undo import undo_address
from tests.console.plans import applied, token_on
from tests.support.history_points import layout_of

if TYPE_CHECKING:
    from tests.console.conftest import Actors

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def forget() -> None:
    cache.clear()


def new_topic(**changes: object) -> dict[str, object]:
    return {
        "topic": "Orders",
        "broker_names": ["broker-a"],
        "write_queue_nums": 4,
        "read_queue_nums": 4,
        "perm": 6,
    } | changes


def test_the_list_shows_client_topics_first_and_others_on_demand(actors, brokers) -> None:
    for name in ("Orders", "%RETRY%billing", "%DLQ%billing", "TBW102"):
        brokers.add_topic(name)

    normal = actors.reader.get(reverse("topics:list")).content.decode()
    dead = actors.reader.get(reverse("topics:list"), {"kind": "dlq"}).content.decode()
    every = actors.reader.get(reverse("topics:list"), {"kind": "all"}).content.decode()

    assert "Orders" in normal
    assert "TBW102" not in normal
    assert "%DLQ%billing" in dead
    assert "Orders" not in dead
    assert "TBW102" in every


def test_the_list_is_filtered_by_part_of_a_name(actors, brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_topic("Payments")

    html = actors.reader.get(reverse("topics:list"), {"q": "PAY"}).content.decode()

    assert "Payments" in html
    assert ">Orders<" not in html


def test_a_long_list_has_pages(actors, brokers) -> None:
    for number in range(120):
        brokers.add_topic(f"topic-{number:03}", queue_nums=1)

    first = actors.reader.get(reverse("topics:list")).content.decode()
    last = actors.reader.get(reverse("topics:list"), {"page": "3"}).content.decode()

    assert "topic-049" in first
    assert "topic-050" not in first
    assert "topic-119" in last


def test_a_queue_has_its_last_hour_and_its_share_of_the_topic(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    topic, store, first_ms = Subject(TOPIC, "broker-a", "Orders"), history_store(), now_ms()
    columns = [Column(PUT.code), Column(PUT.code, 0), Column(PUT.code, 1)]
    ids = store.subject_ids({topic}, first_ms)
    layout, order = layout_of((ids[topic], column) for column in columns)
    for minutes in (5, 4, 3):
        values = np.array([40, 30, 10])[order]
        store.add_sample("broker-a:0", first_ms - minutes * 60_000, 10_000, layout, values, b"{}")

    page = actors.reader.get(reverse("topics:queues", args=["Orders"])).text

    assert len(re.findall(r'title="since \d\d:\d\d: 3 to 3 msg/s"', page)) == 1
    assert len(re.findall(r'title="since \d\d:\d\d: 1 to 1 msg/s"', page)) == 1
    assert "75.0 %" in page
    assert "25.0 %" in page


def test_a_queue_without_stored_data_has_no_share(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=2)

    page = actors.reader.get(reverse("topics:queues", args=["Orders"])).text

    assert page.count("No message data for the last hour.") >= 2
    assert "0.0 %" not in page


def test_a_topic_page_shows_the_ends_of_each_queue(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=1)
    brokers.queues[TopicQueue("Orders", 0)].min_offset = 1_000
    brokers.put("Orders", 0, 1, 2, 3)

    html = actors.reader.get(reverse("topics:detail", args=["Orders"])).content.decode()

    assert "1\u202f000" in html
    assert "1\u202f003" in html


def test_names_with_percent_signs_have_pages(actors, brokers) -> None:
    brokers.add_topic("%RETRY%billing")

    response = actors.reader.get(reverse("topics:detail", args=["%RETRY%billing"]))

    assert response.status_code == 200


def test_a_missing_topic_is_not_found(actors, brokers) -> None:
    assert actors.reader.get(reverse("topics:detail", args=["Nope"])).status_code == 404


def test_an_administrator_creates_a_topic_which_is_audited(actors, brokers) -> None:
    response = applied(actors.admin, reverse("topics:create"), new_topic())

    assert response.status_code == 302
    assert brokers.topic_configs["Orders"].write_queue_nums == 4
    entry = Entry.objects.get()
    assert (entry.actor_name, entry.action, entry.outcome) == ("ada", "topic.create", "done")
    assert entry.after["broker-a"]["write_queue_nums"] == 4


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"topic": ""}, "This field is required."),
        ({"topic": "with blank"}, "Names can contain only letters"),
        ({"topic": "Orders@x"}, "Names can contain only letters"),
        ({"topic": "../etc"}, "Names can contain only letters"),
        ({"topic": "x" * 128}, "at most 127 characters; this one has 128"),
        ({"topic": "%RETRY%x"}, "reserved"),
        ({"topic": "TBW102"}, "reserved"),
        ({"topic": "Taken"}, "A topic with this name already exists."),
        ({"write_queue_nums": 0}, "greater than or equal to 1"),
        ({"write_queue_nums": 1025}, "less than or equal to 1024"),
        ({"read_queue_nums": "many"}, "whole number"),
        ({"read_queue_nums": 2}, "messages in the last queues are never read"),
        ({"perm": 9}, "Select a valid choice"),
        ({"broker_names": ["broker-z"]}, "Select a valid choice"),
        ({"broker_names": []}, "This field is required."),
    ],
)
def test_an_invalid_topic_is_rejected_in_the_form(changes, sentence, actors, brokers) -> None:
    brokers.add_topic("Taken")

    response = actors.admin.post(reverse("topics:create"), new_topic(**changes))

    assert response.status_code == 200
    assert sentence in response.content.decode()
    assert set(brokers.topic_configs) == {"Taken"}
    assert not Entry.objects.exists()


def test_the_brokers_rejections_are_on_the_page_and_in_the_audit_log(
    actors, brokers, monkeypatch
) -> None:
    def refuse(config, broker_names) -> None:
        raise RequestFailedError("127.0.0.1:10911", 1, "no more topics")

    monkeypatch.setattr(gateway().topics, "save", refuse)

    response = applied(actors.admin, reverse("topics:create"), new_topic())

    assert "no more topics" in response.content.decode()
    assert Entry.objects.get().outcome == "failed"


def test_an_edit_keeps_the_name_and_records_before_and_after(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=4)
    data = new_topic(topic="Other", write_queue_nums=8, read_queue_nums=8)

    response = applied(actors.admin, reverse("topics:edit", args=["Orders"]), data)

    assert response.status_code == 302
    assert set(brokers.topic_configs) == {"Orders"}
    assert brokers.topic_configs["Orders"].write_queue_nums == 8
    entry = Entry.objects.get()
    assert entry.before["broker-a"]["write_queue_nums"] == 4
    assert entry.after["broker-a"]["write_queue_nums"] == 8


def opened(actors: Actors, name: str) -> str:
    """Open the form of a topic; return the values that it was opened with."""
    page = actors.admin.get(reverse("topics:edit", args=[name]))
    return str(page.context["form"]["seen"].value())


def test_a_concurrent_save_is_shown_before_it_is_replaced(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=4)
    url = reverse("topics:edit", args=["Orders"])
    first, second = opened(actors, "Orders"), opened(actors, "Orders")
    wide = new_topic(write_queue_nums=8, read_queue_nums=8)
    wider = new_topic(write_queue_nums=6, read_queue_nums=6)
    assert applied(actors.admin, url, wide | {"seen": first}).status_code == 302

    refused = actors.admin.post(url, wider | {"seen": second})

    assert refused.status_code == 409
    lines = {line.label: line for _part, lines in refused.context["parts"] for line in lines}
    queues = lines["Write queues"]
    assert (queues.seen, queues.now, queues.wanted) == ("4", "8", "6")
    assert brokers.topic_configs["Orders"].write_queue_nums == 8
    # After review it can be replaced, because the page carries the values it has shown.
    again = {"token": token_on(refused), "accepted": "on"}
    assert actors.admin.post(url, again).status_code == 302
    assert brokers.topic_configs["Orders"].write_queue_nums == 6


def test_a_tampered_form_saves_nothing(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=4)

    answer = actors.admin.post(
        reverse("topics:edit", args=["Orders"]), new_topic(order="on") | {"seen": "forged"}
    )

    assert "come from this console" in answer.content.decode()
    assert not brokers.topic_configs["Orders"].order


def test_read_queues_cannot_be_fewer_than_the_queues_producers_write_to(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=4)
    url = reverse("topics:edit", args=["Orders"])
    small = new_topic(write_queue_nums=1, read_queue_nums=1)

    assert "Producers use 4 queues" in actors.admin.post(url, small).content.decode()
    assert brokers.topic_configs["Orders"].read_queue_nums == 4

    # In two steps it needs no confirmation, because the removed queues are empty.
    assert applied(actors.admin, url, small | {"read_queue_nums": 4}).status_code == 302
    assert applied(actors.admin, url, small).status_code == 302
    assert brokers.topic_configs["Orders"].read_queue_nums == 1


def test_messages_in_removed_queues_are_counted_by_group_and_asked_about(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=4)
    for queue_id in range(4):
        brokers.put("Orders", queue_id, 1, 2, 3, 4, 5)
    brokers.add_group("billing")
    # Three unread in queue 3, and all of queues 1 and 2, where it never committed.
    brokers.offsets["billing", "Orders", 3] = 2
    url = reverse("topics:edit", args=["Orders"])
    small = new_topic(write_queue_nums=1, read_queue_nums=1)
    assert applied(actors.admin, url, small | {"read_queue_nums": 4}).status_code == 302

    page = actors.admin.post(url, small)

    assert "billing (13)" in page.content.decode()
    assert 'name="accepted"' in page.content.decode()
    assert brokers.topic_configs["Orders"].read_queue_nums == 4
    refused = applied(actors.admin, url, small)
    assert "Select the confirmation first" in refused.content.decode()
    assert brokers.topic_configs["Orders"].read_queue_nums == 4
    assert applied(actors.admin, url, small, accepted="on").status_code == 302
    assert brokers.topic_configs["Orders"].read_queue_nums == 1


@pytest.mark.parametrize("namespace", ["topics", "groups"])
def test_a_name_unknown_to_all_brokers_is_named(actors, brokers, namespace) -> None:
    answer = actors.reader.get(reverse(f"{namespace}:detail", args=["Ordres"]))

    assert answer.status_code == 404
    assert "named Ordres" in answer.content.decode()


def test_a_permission_missing_in_the_form_survives_an_edit(actors, brokers) -> None:
    brokers.add_topic("Orders", perm=0)

    url = reverse("topics:edit", args=["Orders"])
    applied(actors.admin, url, new_topic(perm=0, order="on"))

    assert brokers.topic_configs["Orders"].order
    assert brokers.topic_configs["Orders"].perm == 0


def test_a_topic_is_deleted_after_its_name_was_typed(actors, brokers) -> None:
    brokers.add_topic("Orders")
    url = reverse("topics:delete", args=["Orders"])

    actors.admin.post(url, {"name": "orders"})
    assert "Orders" in brokers.topic_configs

    actors.admin.post(url, {"name": "Orders"})
    assert "Orders" not in brokers.topic_configs
    assert Entry.objects.get().action == "topic.delete"


@pytest.mark.parametrize("action", ["edit", "delete"])
def test_a_system_topic_is_out_of_reach(action, actors, brokers) -> None:
    brokers.add_topic("TBW102")

    url = reverse(f"topics:{action}", args=["TBW102"])
    response = actors.admin.post(url, new_topic(name="TBW102"))

    assert response.status_code == 403
    assert "TBW102" in brokers.topic_configs


def test_script_in_a_name_is_shown_as_text(actors, brokers) -> None:
    brokers.add_topic("<script>alert(1)</script>")

    html = actors.reader.get(reverse("topics:list")).content.decode()

    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def rows(*ends: int) -> list[QueueStatus]:
    return [QueueStatus("broker-a", number, 0, end, None) for number, end in enumerate(ends)]


def test_a_rate_needs_a_second_reading() -> None:
    assert queue_rates("Orders", rows(10, 20), 1_000) == {}


def test_a_rate_is_the_difference_of_two_readings() -> None:
    queue_rates("Orders", rows(10, 20), 0)

    assert queue_rates("Orders", rows(60, 20), 5_000) == {
        BrokerQueue("broker-a", 0): 10.0,
        BrokerQueue("broker-a", 1): 0.0,
    }


def test_a_recreated_queue_has_no_rate() -> None:
    queue_rates("Orders", rows(10), 0)

    assert queue_rates("Orders", rows(3), 5_000) == {}


def shrunk(brokers) -> None:
    """A topic of four queues, two of them read-only, partly read by a group."""
    brokers.add_topic("Orders", queue_nums=4)
    brokers.topic_configs["Orders"] = TopicConfig("Orders", 4, 2, 6)
    brokers.put("Orders", 3, 1, 2, 3)
    brokers.add_group("billing", topic="Orders")
    for queue_id in range(4):
        brokers.offsets["billing", "Orders", queue_id] = 0


def test_queues_to_be_removed_are_watched_until_they_are_read(actors, brokers) -> None:
    shrunk(brokers)
    part = reverse("topics:queues", args=["Orders"])

    before = actors.operator.get(part).text
    brokers.offsets["billing", "Orders", 3] = 3
    after = actors.operator.get(part).text

    assert "not fully read" in before
    assert "3 msg to read" in before
    assert ">fully read<" in after
    assert "?read_queue_nums=2" in after


def test_queues_that_no_group_reads_do_not_count_as_read(actors, brokers) -> None:
    shrunk(brokers)
    brokers.offsets.clear()
    brokers.subscriptions.clear()

    part = actors.reader.get(reverse("topics:queues", args=["Orders"])).text

    assert "No group consumes this topic" in part
    assert "Step 2" not in part


def test_the_second_step_proposes_the_read_queues_and_changes_nothing_yet(actors, brokers) -> None:
    shrunk(brokers)

    form = actors.operator.get(reverse("topics:edit", args=["Orders"]), {"read_queue_nums": 2}).text

    assert re.search(r'name="read_queue_nums" value="2"', form)
    assert brokers.topic_configs["Orders"].read_queue_nums == 4


def test_a_clone_starts_with_the_values_of_the_other_topic(actors, brokers) -> None:
    brokers.topic_configs["Orders"] = TopicConfig("Orders", 12, 12, 4, order=True)

    form = actors.operator.get(reverse("topics:create"), {"like": "Orders"}).text
    other = actors.operator.get(reverse("topics:create"), {"like": "Nope"}).text

    assert 'value="Orders-copy"' in form
    assert re.search(r'name="write_queue_nums" value="12"', form)
    assert "-copy" not in other


def test_a_purge_preview_lists_deletions_and_leaves_the_topic_alone(actors, brokers) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    brokers.put("Orders", 0, 1, 2, 3)
    url = reverse("topics:purge", args=["Orders"])
    config = brokers.topic_configs["Orders"]

    page = actors.operator.get(url).text
    actors.operator.post(url, {"name": "other"})
    kept = actors.operator.get(reverse("topics:queues", args=["Orders"])).text
    done = actors.operator.post(url, {"name": "Orders"}, follow=True).text

    assert re.search(r"<dt>Messages retained</dt>\s*<dd>3", page)
    assert "is empty" not in kept
    assert "Topic Orders was purged." in done
    assert brokers.topic_configs["Orders"] == config
    assert Entry.objects.get().action == "topic.purge"


def test_a_purge_that_failed_to_recreate_the_topic_links_to_the_remedy(
    actors, brokers, monkeypatch
) -> None:
    brokers.add_topic("Orders", queue_nums=2)
    config = brokers.topic_configs["Orders"]
    failure = BrokerDownError("127.0.0.1:10911", "no answer within 3 seconds")

    def fail(*_args: object) -> None:
        raise failure

    with monkeypatch.context() as broken:
        broken.setattr(FakeTopics, "save", fail)
        url = reverse("topics:purge", args=["Orders"])
        page = actors.operator.post(url, {"name": "Orders"}, follow=True)
    entry = Entry.objects.get()
    undo = reverse("topics:undo", args=[entry.pk])

    assert page.redirect_chain == [(undo, 302)]
    assert (
        "Topic Orders was deleted, but wasn&#x27;t recreated on every broker: The broker at"
        in page.text
    )
    assert (entry.action, entry.outcome) == ("topic.purge", Entry.Outcome.FAILED)
    assert undo in actors.admin.get(reverse("audit:list")).text
    assert "Orders" not in brokers.topic_configs

    actors.operator.post(undo, {"token": token_on(page)})

    assert brokers.topic_configs["Orders"] == config


def test_a_purge_that_deleted_nothing_asks_again_and_a_successful_one_has_no_undo(
    actors, brokers, monkeypatch
) -> None:
    brokers.add_topic("Orders")
    url = reverse("topics:purge", args=["Orders"])
    failure = BrokerDownError("127.0.0.1:10911", "no answer within 3 seconds")

    def fail(*_args: object) -> None:
        raise failure

    with monkeypatch.context() as broken:
        broken.setattr(FakeTopics, "delete", fail)
        page = actors.operator.post(url, {"name": "Orders"})
    actors.operator.post(url, {"name": "Orders"})
    done = Entry.objects.get(outcome=Entry.Outcome.DONE)

    assert page.status_code == 422
    assert "no answer within 3 seconds" in page.text
    assert undo_address(done) == ""
    assert actors.operator.get(reverse("topics:undo", args=[done.pk])).status_code == 404


def test_a_system_topic_is_not_purged(actors, brokers) -> None:
    brokers.add_topic("%DLQ%billing")

    url = reverse("topics:purge", args=["%DLQ%billing"])

    assert actors.admin.post(url, {"name": "%DLQ%billing"}).status_code == 403


def test_each_queue_reports_its_retention(actors, brokers) -> None:
    cache.clear()
    brokers.add_topic("Orders", queue_nums=2)
    first = now_ms() - 90 * 60_000
    brokers.put("Orders", 0, first, now_ms())

    page = actors.reader.get(reverse("topics:detail", args=["Orders"])).text

    assert f'data-age="{first}"' in page
    assert (
        page.count("No messages are retained in this queue, or there are too many") == 2
    )  # shown, and announced to screen readers


def test_queue_retention_is_queried_once_a_minute_and_only_for_a_few(brokers, monkeypatch) -> None:
    cache.clear()
    brokers.add_topic("Orders", queue_nums=2)
    brokers.add_topic("Many", queue_nums=QUEUES_QUERIED_MAX + 1)
    for queue_id in range(QUEUES_QUERIED_MAX + 1):
        brokers.put("Many", queue_id, 1_000)
    brokers.put("Orders", 1, 2_000, 3_000)
    requests: list[str] = []
    answer = FakeTopics.oldest

    def counted(self: FakeTopics, queues: tuple[QueueStatus, ...], topic: str) -> object:
        requests.append(topic)
        return answer(self, queues, topic)

    monkeypatch.setattr(FakeTopics, "oldest", counted)
    status = brokers.status_of("Orders")

    found = [oldest_of("Orders", status) for _ in range(3)]

    assert found == [{BrokerQueue("broker-a", 1): 2_000}] * 3
    assert oldest_of("Many", brokers.status_of("Many")) == {}
    assert requests == ["Orders"]


def test_a_broker_that_hides_its_retention_breaks_no_page(brokers, monkeypatch) -> None:
    cache.clear()
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1_000)
    failure = BrokerDownError("127.0.0.1:10911", "no answer within 3 seconds")

    def fail(*_args: object) -> None:
        raise failure

    monkeypatch.setattr(FakeTopics, "oldest", fail)

    assert oldest_of("Orders", brokers.status_of("Orders")) == {}
