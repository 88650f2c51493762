"""The overview: figures with their source, one verdict, unknown values never shown as zero."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from console.demo.process import DemoState, demo_process
from console.gateway.answers import BrokerNode, Replication, SlaveLink
from console.gateway.errors import BrokerDownError, NameServerDownError, UnconfirmedBrokerError
from console.gateway.known_addresses import known_addresses
from console.lib.moment import now_ms
from console.observe.history.access import history_store
from console.observe.history.metrics import BROKER, GOT, GROUP, LAG, PUT, Subject
from console.observe.overview.services import shared_summary, summarize_now
from console.observe.overview.states import State
from console.people.audit.models import Entry
from tests.support.history_points import keep

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collector")]


BROKER_0 = Subject(BROKER, "broker-a", "0")
BILLING = Subject(GROUP, "broker-a", "billing")
STRANGER = BrokerNode("DefaultCluster", "broker-x", 0, "10.0.0.66:10911")


def test_a_quiet_broker_is_fine(brokers) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing", online=True, topic="Orders")

    summary = summarize_now()

    assert summary.state is State.OK
    assert summary.verdict == "The broker is up. No group is lagging."
    assert summary.put_tps.value == 12.5
    assert not summary.is_empty


def test_a_lag_that_no_member_works_off_is_a_warning(brokers) -> None:
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing")
    brokers.offsets["billing", "Orders", 0] = 1

    summary = summarize_now()

    assert summary.state is State.WARN
    assert summary.verdict == "billing is lagging and has no consumers."
    assert summary.lag == 2


def test_a_lag_that_members_work_off_is_not_a_warning(brokers) -> None:
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.offsets["billing", "Orders", 0] = 1

    assert summarize_now().state is State.OK


def test_a_broker_that_accepts_no_messages_is_bad_and_explains_why(brokers, actors) -> None:
    brokers.store_refuses = "Input/output error; restart the broker"

    summary = summarize_now()

    assert summary.state is State.BAD
    assert summary.verdict == (
        "broker-a isn't accepting messages: Input/output error; restart the broker."
    )
    assert [row.state for row in summary.brokers] == [State.BAD]
    assert escape(summary.verdict) in actors.reader.get(reverse("overview:index")).text


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (1, "broker-a skipped a damaged range of its log. See the broker log for its location."),
        (
            3,
            "broker-a skipped 3 damaged ranges of its log. See the broker log for their locations.",
        ),
    ],
)
def test_damage_in_a_log_is_a_warning(brokers, count, sentence) -> None:
    brokers.damaged_ranges = count

    summary = summarize_now()

    assert summary.state is State.WARN
    assert [finding.text for finding in summary.findings] == [sentence]
    assert [row.state for row in summary.brokers] == [State.WARN]


def test_unreadable_messages_are_a_warning_that_names_their_topics(brokers) -> None:
    brokers.unreachable_topics = {"Orders": 5, "Payments": 1}

    summary = summarize_now()

    assert [row.state for row in summary.brokers] == [State.WARN]
    assert [finding.text for finding in summary.findings] == [
        "broker-a has 6 messages that consumers can't read because Orders, Payments is missing "
        "from its topics.json. Restore the file from a backup, or rebuild it with verify "
        "--rebuild-topics."
    ]


def test_an_unresponsive_broker_makes_sums_unknown(brokers) -> None:
    down = BrokerDownError("127.0.0.1:10911", "connection refused")
    brokers.silent = down

    summary = summarize_now()

    assert summary.state is State.BAD
    assert summary.verdict == down.what
    assert summary.put_tps.value is None
    assert summary.put_tps.reason == down.what
    assert not summary.is_complete


def test_a_broker_that_omits_a_figure_is_named(brokers) -> None:
    brokers.runtime_values["put_tps"] = None

    summary = summarize_now()

    assert summary.put_tps.value is None
    assert summary.put_tps.reason == "127.0.0.1:10911 didn't report this."


def test_an_unconfirmed_broker_is_not_counted_but_listed(brokers, actors) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.strangers = [STRANGER]

    summary = summarize_now()
    html = actors.reader.get(reverse("overview:index")).content.decode()

    assert summary.state is State.WARN
    assert summary.verdict == "Broker broker-x at 10.0.0.66:10911 hasn't been confirmed."
    assert summary.is_complete
    assert summary.put_tps.value == 12.5
    assert "send it any requests" in html
    assert reverse("overview:confirm") not in html


def test_a_single_unconfirmed_broker_leaves_every_figure_unknown(brokers) -> None:
    brokers.has_broker = False
    brokers.strangers = [STRANGER]

    summary = summarize_now()

    assert summary.state is State.BAD
    assert not summary.is_complete
    assert summary.put_tps.reason == UnconfirmedBrokerError(STRANGER.address).what


def test_an_administrator_confirms_what_the_page_shows(brokers, actors, settings) -> None:
    settings.TREBUCHET_BROKER_ACCESS_KEY = "console"
    settings.TREBUCHET_BROKER_SECRET_KEY = "12345678"
    brokers.strangers = [STRANGER]
    url = reverse("overview:confirm")
    shown = {"broker_name": "broker-x", "address": "10.0.0.66:10911"}
    assert f'action="{url}"' in actors.admin.get(reverse("overview:index")).content.decode()

    moved = actors.admin.post(url, {**shown, "address": "10.0.0.67:10911"}, follow=True)
    assert actors.reader.post(url, shown).status_code == 403
    assert shown["address"] not in known_addresses()
    confirmed = actors.admin.post(url, shown, follow=True)

    assert "no longer registered at 10.0.0.67:10911" in moved.content.decode()
    assert "Broker broker-x at 10.0.0.66:10911 was confirmed." in confirmed.content.decode()
    assert shown["address"] in known_addresses()
    (entry,) = Entry.objects.filter(action="broker.confirm")
    assert (entry.actor_name, entry.subject, entry.outcome) == (
        "ada",
        "broker-x 10.0.0.66:10911",
        "done",
    )


def test_no_registered_broker_is_bad(brokers) -> None:
    brokers.has_broker = False

    summary = summarize_now()

    assert summary.state is State.BAD
    assert "No brokers are registered" in summary.verdict


def test_an_empty_broker_page_teaches_the_next_step(actors, brokers) -> None:
    html = actors.admin.get(reverse("overview:index")).content.decode()

    assert "No messages yet." in html
    assert reverse("demo:start") in html
    assert "setNamesrvAddr" in html


def test_an_empty_page_reloads_once_data_arrives(actors, brokers) -> None:
    page = actors.admin.get(reverse("overview:index")).content.decode()
    (address,) = re.findall(r'id="summary" hx-get="([^"]+)"', page)
    before = actors.admin.get(address)
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1)
    shared_summary.forget()

    after = actors.admin.get(address)

    assert "HX-Refresh" not in before.headers
    assert after["HX-Refresh"] == "true"
    page = actors.admin.get(reverse("overview:index")).content.decode()
    assert "No messages yet." not in page
    (address,) = re.findall(r'id="summary" hx-get="([^"]+)"', page)
    assert "HX-Refresh" not in actors.admin.get(address).headers


def test_the_empty_page_shows_whether_the_demo_runs_or_failed(actors, brokers, monkeypatch) -> None:
    states = [DemoState(is_running=True, ends_at=timezone.now() + timedelta(minutes=9))]
    states.append(DemoState(is_running=False, failure="No route to the topic."))
    monkeypatch.setattr(demo_process, "state", lambda: states[0])
    page = actors.admin.get(reverse("overview:index")).content.decode()
    (address,) = re.findall(r'id="summary" hx-get="([^"]+)"', page)
    states.pop(0)

    part = actors.admin.get(address).content.decode()

    assert "demo running" in page
    assert reverse("demo:start") not in page
    assert 'id="empty-demo" hx-swap-oob="true"' in part
    assert "No route to the topic." in part
    assert reverse("demo:start") in part


def test_a_demo_that_ended_has_its_button_back_after_the_next_refresh(
    actors, brokers, monkeypatch
) -> None:
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, now_ms())
    ends_at = timezone.now() + timedelta(minutes=9)
    states = [DemoState(is_running=True, ends_at=ends_at), DemoState(is_running=False)]
    monkeypatch.setattr(demo_process, "state", lambda: states[0])
    page = actors.admin.get(reverse("overview:index")).content.decode()
    states.pop(0)

    part = actors.admin.get(reverse("overview:summary")).content.decode()

    assert f'id="demo" method="post" action="{reverse("demo:stop")}"' in page
    assert f'id="demo" method="post" action="{reverse("demo:start")}"' in part
    assert reverse("demo:stop") not in part
    assert "demo:" not in actors.reader.get(reverse("overview:summary")).content.decode()


def test_a_read_only_user_is_told_who_can_start_the_demo(actors, brokers) -> None:
    html = actors.reader.get(reverse("overview:index")).content.decode()

    assert reverse("demo:start") not in html
    assert "An administrator can start demo traffic" in html


def test_the_page_explains_the_problem_if_no_name_server_answers(actors, brokers) -> None:
    brokers.fails = NameServerDownError(["127.0.0.1:9876"], "connection refused")

    response = actors.reader.get(reverse("overview:index"))

    html = response.content.decode()
    assert response.status_code == 503
    assert "The name server at 127.0.0.1:9876 isn&#x27;t responding: connection refused." in html
    assert "TREBUCHET_NAMESRV" in html


def test_without_brokers_the_overview_shows_earlier_samples(actors, brokers) -> None:
    first_ms = now_ms() // 10_000 * 10_000 - 60_000
    orders = BILLING._replace(kind="topic", name="Orders")
    keep(history_store(), first_ms, {(BROKER_0, PUT): [50] * 6, (orders, PUT): [50] * 6})
    brokers.fails = NameServerDownError(["127.0.0.1:9876"], "connection refused")

    html = actors.reader.get(reverse("overview:index")).text

    assert "was recorded earlier" in html
    assert ">Orders</a>" in html
    assert "data-history=" in html


def test_the_self_refreshing_part_reports_it_in_place(actors, brokers) -> None:
    brokers.fails = NameServerDownError(["127.0.0.1:9876"], "connection refused")

    response = actors.reader.get(reverse("overview:summary"), headers={"HX-Request": "true"})

    assert response.status_code == 200  # htmx shows nothing else
    assert "responding" in response.content.decode()
    assert "<html" not in response.content.decode()


SLAVE = BrokerNode("DefaultCluster", "broker-a", 1, "127.0.0.1:10921")
MASTER = BrokerNode("DefaultCluster", "broker-a", 0, "127.0.0.1:10911")


def says(**values) -> Replication:
    return Replication(
        **{
            "node": SLAVE,
            "read_at_ms": 1,
            "is_master": False,
            "max_offset": 4000,
            "is_following": True,
            "local_address": "127.0.0.1:40000",
            **values,
        }
    )


def test_a_single_broker_has_no_replication(brokers, actors) -> None:
    assert "Replication" not in actors.reader.get(reverse("overview:summary")).text


def test_a_pair_shows_how_far_the_slave_is(brokers, actors) -> None:
    brokers.slaves.append(SLAVE)
    link = SlaveLink("127.0.0.1:40000", 2048, 1500, 800, 0, is_in_sync=True)
    brokers.replication[MASTER.address] = says(
        node=MASTER, is_master=True, max_offset=6048, links=(link,)
    )

    page = actors.reader.get(reverse("overview:summary")).text

    assert summarize_now().state is State.OK
    assert SLAVE.address in page
    assert "2.0 KiB" in page
    assert "ago" in page


def test_a_slave_that_does_not_follow_is_bad_and_explains_why(brokers, actors) -> None:
    brokers.slaves.append(SLAVE)
    brokers.replication[SLAVE.address] = says(
        is_following=False, local_address="", reason="no connection: refused <b>"
    )

    summary = summarize_now()
    page = actors.reader.get(reverse("overview:summary")).text

    assert summary.state is State.BAD
    assert summary.verdict == (
        "Slave 1 of broker-a isn't following its master: no connection: refused <b>"
    )
    assert "refused &lt;b&gt;" in page
    assert "The slave isn't connected to the master." in page


def test_a_late_slave_is_a_warning(brokers) -> None:
    brokers.slaves.append(SLAVE)
    link = SlaveLink("127.0.0.1:40000", 1 << 20, 95_000, 10, 0, is_in_sync=False)
    brokers.replication[MASTER.address] = says(node=MASTER, is_master=True, links=(link,))

    assert summarize_now().verdict == "Slave 1 of broker-a is 95 s behind its master."


def test_data_that_a_slave_cannot_take_over_is_a_warning(brokers) -> None:
    brokers.slaves.append(SLAVE)
    brokers.replication[SLAVE.address] = says(metadata_failures=("topics: refused",))

    summary = summarize_now()

    assert summary.state is State.WARN
    assert summary.verdict == "Slave 1 of broker-a: Not replicated: topics: refused"


def test_a_set_without_a_master_differs_from_a_silent_one(brokers, actors) -> None:
    brokers.slaves.append(BrokerNode("DefaultCluster", "broker-b", 2, "127.0.0.1:10931"))
    brokers.replication["127.0.0.1:10931"] = BrokerDownError("127.0.0.1:10931", "refused")

    page = actors.reader.get(reverse("overview:summary")).text

    assert "No master is registered, so messages can't be sent." in page
    assert "127.0.0.1:10931" in page


def test_tiles_have_a_history_from_before_they_were_opened(brokers, actors) -> None:
    """An hour is shown by minutes, longer spans as days."""
    slot_ms = now_ms() // 600_000 * 600_000
    rows = {(BROKER_0, PUT): [50, 70], (BROKER_0, GOT): [50, 70], (BILLING, LAG): [3, 4]}
    for slots in (3, 2):
        keep(history_store(), slot_ms - slots * 600_000, rows)
    young = summarize_now().sparks.put_day
    assert young is not None
    assert not young.is_day
    for slots in range(12, 3, -1):
        keep(history_store(), slot_ms - slots * 600_000, rows)

    sparks = summarize_now().sparks
    page = actors.reader.get(reverse("overview:summary")).text

    assert sparks.put_day is not None
    assert sum(value or 0 for value in sparks.put_day.values) == 11 * 120
    assert page.count('class="tile__spark"') == 5
    assert sparks.put_day.is_day
    # Both are two hours old.
    assert page.count('data-words="since %s: 120') == 2


def test_the_chart_of_all_brokers_needs_no_watcher(brokers, actors) -> None:
    first_ms = now_ms() // 10_000 * 10_000 - 60_000
    other = BROKER_0._replace(broker="broker-b")
    keep(history_store(), first_ms, {(BROKER_0, PUT): [50], (other, PUT): [10]})

    page = actors.reader.get(reverse("overview:index"))
    found = re.search(r'data-history="([^"]+)"', page.text)
    assert found
    answer = actors.reader.get(found[1].replace("&amp;", "&")).json()

    received = dict(zip(answer["times"], answer["lines"][0]["values"], strict=True))
    assert received[first_ms] == 6.0


def test_an_unreadable_history_only_removes_the_sparklines(
    brokers, actors, settings, tmp_path
) -> None:
    path = tmp_path / "broken.sqlite3"
    path.write_bytes(b"no database" * 1_000)
    settings.TREBUCHET_HISTORY_FILE = path
    history_store.cache_clear()

    page = actors.reader.get(reverse("overview:summary"))

    assert page.status_code == 200
    assert "tile__spark" not in page.text


@pytest.mark.parametrize(
    ("up_for_ms", "before_today", "is_since_start"),
    [(3_600_000, 0, True), (3_600_000, 7, False), (90_000_000, 0, False)],
)
def test_a_broker_that_started_today_counts_from_its_start_and_shows_it(
    brokers, actors, collector, up_for_ms, before_today, is_since_start
) -> None:
    brokers.up_for_ms, brokers.put_before_today = up_for_ms, before_today
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1)

    page = actors.reader.get(reverse("overview:index")).text

    assert ("since the broker restarted" in page) is (is_since_start)
    assert ("since midnight (broker time)" in page) is not is_since_start
