"""The flow: traffic between brokers, topics and groups, and the cost of showing it."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import TYPE_CHECKING

import pytest
from channels.routing import URLRouter
from django.contrib.auth.models import AnonymousUser
from django.urls import path, reverse

from console.accounts.session_watch import SessionWatch
from console.connect.addresses import ADDRESSES_KEPT_MS
from console.gateway.errors import NameServerDownError
from console.lib.moment import now_ms
from console.observe.flow.consumers import FlowConsumer
from console.observe.flow.drawing import BAND_MAX, ROW, draw
from console.observe.flow.hub import VIEWERS_PER_USER_MAX, FlowHub, Viewer
from console.observe.flow.pages import KEPT_MS, SharedFlow
from console.observe.flow.reading import NODES_MAX, Flow, Node, Ribbon, flow_of
from console.observe.history.access import history_store
from console.observe.history.metrics import CONSUMED, LAG, PROGRESS, PUT, TOPIC, Subject, pair
from console.observe.overview.services import SUMMARY_KEPT_MS
from tests.console.socket_client import SocketClient
from tests.support.history_points import keep

if TYPE_CHECKING:
    from console.gateway.fakes.broker import FakeBroker
    from tests.support.history_points import Rows

pytestmark = pytest.mark.django_db


def topic(name: str, broker: str = "broker-a") -> Subject:
    return Subject(TOPIC, broker, name)


def progress(group: str, name: str) -> Subject:
    return Subject(PROGRESS, "broker-a", pair(group, name))


def sampled(rows: Rows, samples: int = 6) -> Flow:
    """Return the flow of a history that ends now; each figure is repeated."""
    now = now_ms()
    repeated: Rows = {key: list(values) * samples for key, values in rows.items()}
    keep(history_store(), now - samples * 10_000, repeated)
    return flow_of(history_store(), now)


def test_rates_flow_from_the_broker_through_the_topic_to_its_groups(brokers) -> None:
    flow = sampled(
        {
            (topic("Orders"), PUT): [500],
            (progress("billing", "Orders"), CONSUMED): [300],
            (progress("billing", "Orders"), LAG): [7],
            (progress("audit", "Orders"), CONSUMED): [500],
        }
    )

    assert [(each.name, each.rate) for each in flow.topics] == [("Orders", 50.0)]
    assert [(each.name, each.rate, each.lag) for each in flow.groups] == [
        ("audit", 50.0, 0),
        ("billing", 30.0, 7),
    ]
    assert [(each.source, each.target, each.rate) for each in flow.received] == [
        ("broker-a", "Orders", 50.0)
    ]
    assert [(each.source, each.target, each.rate) for each in flow.consumed] == [
        ("Orders", "audit", 50.0),
        ("Orders", "billing", 30.0),
    ]


def test_a_stalled_ribbon_with_waiting_messages_shows_since_when(brokers) -> None:
    now = now_ms()
    stuck = progress("billing", "Orders")
    caught_up = progress("audit", "Orders")
    # Five minutes with messages, then five without.
    keep(
        history_store(),
        now - 600_000,
        {
            (topic("Orders"), PUT): [10] * 60,
            (stuck, CONSUMED): [10] * 30 + [0] * 30,
            (stuck, LAG): [300] * 60,
            (caught_up, CONSUMED): [0] * 60,
            (caught_up, LAG): [0] * 60,
        },
    )

    ribbons = {each.target: each for each in flow_of(history_store(), now).consumed}

    stopped = ribbons["billing"].stopped_ms
    assert stopped is not None
    assert abs(now - 300_000 - stopped) <= 60_000
    assert ribbons["audit"].stopped_ms is None


def test_a_group_that_read_nothing_within_the_hour_stopped_longer_ago(brokers) -> None:
    still = progress("billing", "Orders")

    flow = sampled({(topic("Orders"), PUT): [10], (still, CONSUMED): [0], (still, LAG): [5]})

    assert flow.consumed[0].stopped_ms == 0


def test_the_busiest_have_rows_and_the_rest_are_counted(brokers) -> None:
    flow = sampled({(topic(f"Topic{number:02}"), PUT): [number * 10] for number in range(1, 31)})

    assert len(flow.topics) == NODES_MAX
    assert flow.more_topics == 30 - NODES_MAX
    assert {each.name for each in flow.topics} == {f"Topic{number}" for number in range(19, 31)}


def test_topics_without_senders_and_readers_do_not_take_part(brokers) -> None:
    flow = sampled(
        {
            (topic("Idle"), PUT): [0],
            (topic("Read"), PUT): [0],
            (progress("billing", "Read"), CONSUMED): [0],
            (topic("%RETRY%billing"), PUT): [50],
        }
    )

    assert [each.name for each in flow.topics] == ["Read"]


def test_without_samples_there_is_no_flow_and_the_page_explains_how_to_start(
    actors, brokers
) -> None:
    brokers.add_topic("Orders")

    html = actors.reader.get("/").content.decode()

    assert flow_of(history_store(), now_ms()).is_empty
    assert "No topics sampled in the last minute" in html


def test_the_page_has_the_flow_and_client_names_are_escaped(actors, brokers) -> None:
    brokers.add_topic("Orders")
    sampled({(topic("Orders"), PUT): [500], (progress("a&b", "Orders"), CONSUMED): [500]})

    html = actors.reader.get("/").content.decode()

    assert '<a class="flow__name" href="/topics/t/Orders/">Orders</a>' in html
    assert "a&amp;b" in html
    assert len(re.findall(r"<path d=\"M0 ", html)) == 2


def test_a_ribbon_links_to_the_live_page_of_its_messages(actors, brokers) -> None:
    brokers.add_topic("Orders")
    sampled({(topic("Orders"), PUT): [500], (progress("a&b", "Orders"), CONSUMED): [500]})

    html = actors.reader.get("/").content.decode()

    leads = [unescape(each) for each in re.findall(r'<a href="(/live/[^"]*)" tabindex', html)]
    assert leads == ["/live/?topic=Orders", "/live/?topic=Orders&group=a%26b"]


def test_ribbons_stay_within_their_rows_side_by_side() -> None:
    sources = (Node("a", 8.0), Node("b", 2.0))
    targets = (Node("x", 10.0),)
    ribbons = (Ribbon("a", "x", 8.0), Ribbon("b", "x", 2.0), Ribbon("b", "gone", 1.0))

    shapes = draw(ribbons, sources, targets)

    assert [each.ribbon.source for each in shapes] == ["a", "b"]
    numbers = [[float(part) for part in re.findall(r"-?[\d.]+", each.path)] for each in shapes]
    # "M0 y C50 y 50 top 100 top V bottom": where a ribbon arrives, and its end there.
    arrivals = [(each[7], each[8]) for each in numbers]
    assert arrivals[0][1] == pytest.approx(arrivals[1][0], abs=0.2)
    assert arrivals[1][1] - arrivals[0][0] == pytest.approx(BAND_MAX, abs=0.2)
    assert 0 <= arrivals[0][0] <= arrivals[1][1] <= ROW


def test_a_hundred_pages_in_four_seconds_read_the_history_once(brokers) -> None:
    reads = []

    def read(at_ms: int) -> Flow:
        reads.append(at_ms)
        return flow_of(history_store(), at_ms)

    shared = SharedFlow(read)
    now = now_ms()

    pages = {shared.html(now + number * KEPT_MS // 100) for number in range(100)}

    assert len(reads) == len(pages) == 1
    shared.html(now + KEPT_MS)
    assert len(reads) == 2


@pytest.fixture
def broker_requests(brokers, monkeypatch) -> list[int]:
    """Receives an item for each request to the broker."""
    broker_requests = []
    check = type(brokers).check

    def counted(self: FakeBroker) -> None:
        broker_requests.append(1)
        check(self)

    monkeypatch.setattr(type(brokers), "check", counted)
    return broker_requests


def test_ten_overview_viewers_query_the_broker_as_often_as_one(
    actors, broker_requests, monkeypatch
) -> None:
    now = now_ms()
    monkeypatch.setattr("console.observe.overview.services.now_ms", lambda: now)
    url = reverse("overview:summary")

    actors.reader.get(url)
    once = len(broker_requests)
    for _ in range(9):
        assert actors.admin.get(url).status_code == 200

    assert once > 0
    assert len(broker_requests) == once


def test_a_hundred_overview_loads_query_the_broker_as_often_as_one(
    actors, broker_requests, monkeypatch
) -> None:
    now = now_ms()
    for module in ("console.observe.overview.services", "console.connect.addresses"):
        monkeypatch.setattr(f"{module}.now_ms", lambda: now)

    actors.reader.get(reverse("overview:index"))
    once = len(broker_requests)
    for number in range(99):
        name = "overview:index" if number % 2 else "overview:summary"
        assert actors.reader.get(reverse(name)).status_code == 200
    assert len(broker_requests) == once > 0

    now += max(SUMMARY_KEPT_MS, ADDRESSES_KEPT_MS)
    actors.reader.get(reverse("overview:index"))
    assert len(broker_requests) == 2 * once


def test_viewers_also_share_a_brokers_fault(actors, brokers, monkeypatch) -> None:
    now = now_ms()
    monkeypatch.setattr("console.observe.overview.services.now_ms", lambda: now)
    brokers.fails = NameServerDownError(["127.0.0.1:9876"], "refused")
    url = reverse("overview:summary")

    assert actors.reader.get(url).status_code == 503
    brokers.fails = None

    assert actors.admin.get(url).status_code == 503


async def test_the_hub_renders_each_language_once_for_all_viewers() -> None:
    rendered = []

    def render() -> str:
        rendered.append(1)
        return f"<p>{len(rendered)}</p>"

    hub = FlowHub(render, every_s=3600)
    viewers = [Viewer(number, "en") for number in range(100)]
    for viewer in viewers:
        assert hub.join(viewer)

    shown = await asyncio.wait_for(asyncio.gather(*(each.next() for each in viewers)), 60)

    assert set(shown) == {"<p>1</p>"}
    assert len(rendered) == 1
    for viewer in viewers:
        await hub.leave(viewer)


async def test_a_user_watches_in_a_limited_number_of_windows() -> None:
    hub = FlowHub(str, every_s=3600)
    viewers = [Viewer("ada", "en") for _ in range(VIEWERS_PER_USER_MAX)]
    joined = [hub.join(viewer) for viewer in viewers]

    assert all(joined)
    assert not hub.join(Viewer("ada", "en"))
    assert hub.join(Viewer("rita", "en"))


async def test_a_stranger_gets_no_socket() -> None:
    hub = FlowHub(str, every_s=3600)
    route = path("overview/flow/", FlowConsumer.as_asgi(hub=hub, sessions=SessionWatch()))
    socket = SocketClient(URLRouter([route]), "/overview/flow/", user=AnonymousUser(), session=None)

    assert not await socket.connect()


async def test_a_failed_flow_drawing_is_retried() -> None:
    drawn_times: list[int] = []

    def render() -> str:
        drawn_times.append(1)
        if len(drawn_times) < 3:
            raise ZeroDivisionError("of a bug")
        return "<p>at last</p>"

    hub = FlowHub(render, every_s=0.01)
    viewer = Viewer("ada", "en")
    hub.join(viewer)

    assert await asyncio.wait_for(viewer.next(), 60) == "<p>at last</p>"
    await hub.leave(viewer)
