"""Pages of a large cluster: server time, and requests to brokers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from django.urls import reverse

from console.gateway.access import gateway
from console.gateway.answers import Member
from console.gateway.connections import Producer
from console.gateway.fakes.broker import BROKER_NAME, FakeBroker
from console.lib.moment import now_ms
from console.observe.history.access import history_store
from console.observe.history.metrics import GROUP, LAG, PROGRESS, PUT, TOPIC, Metric, Subject, pair
from console.observe.overview.services import shared_summary
from tests.support.history_points import STEP_MS, keep
from tests.support.large_cluster import (
    CONNECTIONS,
    GROUPS,
    GROUPS_MS_MAX,
    PAGE_MS_MAX,
    TOPICS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collector")]

FEW = 60
"""More than one page of a list."""
TRIES = 8
# Time for two million turns of an empty loop in this thread, on the machine that the limit is for.
TURNS, TURNS_MS = 2_000_000, 90


class Page(NamedTuple):
    """A page by name, possibly about one of many objects."""

    name: str
    arguments: tuple[str, ...] = ()
    query: str = ""
    ms_max: int = PAGE_MS_MAX

    @property
    def path(self) -> str:
        return reverse(self.name, args=self.arguments) + self.query


PAGES = (
    Page("overview:index"),
    Page("topics:list"),
    Page("topics:list", query="?sort=-lag"),
    Page("topics:list", query="?q=t-0005"),
    Page("topics:detail", ("t-00050",)),
    Page("groups:list", ms_max=GROUPS_MS_MAX),
    Page("groups:list", query="?sort=-lag", ms_max=GROUPS_MS_MAX),
    Page("groups:detail", ("g-00050",)),
    Page("clients:producers"),
    Page("dead_letters:list"),
    Page("offsets:index", query="?group=g-00050"),
    Page("browse:search"),
    Page("tracing:river"),
    Page("files:index"),
    Page("sending:send"),
    Page("palette:entries", query="?q=t-0005"),
)


def fill(brokers: FakeBroker, topics: int, groups: int, connections: int) -> None:
    """Create topics with two queues and messages, groups that each read one, and clients."""
    now = now_ms()
    subjects: dict[tuple[Subject, Metric], list[int | None]] = {}
    for number in range(topics):
        name = f"t-{number:05d}"
        brokers.add_topic(name, queue_nums=2)
        brokers.put(name, 0, now - 60_000, now - 1_000)
        subjects[Subject(TOPIC, BROKER_NAME, name), PUT] = [number % 7] * 3
    for number in range(groups):
        name, topic = f"g-{number:05d}", f"t-{number % topics:05d}"
        brokers.add_group(name, topic=topic)
        brokers.offsets[name, topic, 0] = 1
        subjects[Subject(GROUP, BROKER_NAME, name), LAG] = [number % 5] * 3
        subjects[Subject(PROGRESS, BROKER_NAME, pair(name, topic)), LAG] = [number % 5] * 3
    for number in range(connections):
        name = f"g-{number % groups:05d}"
        address = f"10.0.0.{number % 250}:{50_000 + number}"
        brokers.members.setdefault(name, []).append(
            Member(f"c{number}", address, "JAVA", 407, (BROKER_NAME,))
        )
        brokers.producers.append(
            Producer(f"pg{number}", f"p{number}", address, "JAVA", 407, now, (BROKER_NAME,))
        )
    keep(history_store(), now - now % STEP_MS - 3 * STEP_MS, subjects)


class CountedCalls:
    """A part of the gateway that counts requests to brokers.

    A call about several topics or groups counts as one for each.
    """

    def __init__(self, subject: object, counted: list[str]) -> None:
        self._subject = subject
        self._counted = counted

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._subject, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            listed = [
                list(each) if isinstance(each, Iterable) and not isinstance(each, str) else each
                for each in arguments
            ]
            many = max((len(each) for each in listed if isinstance(each, list)), default=1)
            self._counted.extend([name] * max(1, many))
            return found(*listed, **named)

        return call


@pytest.fixture
def broker_requests(brokers: FakeBroker) -> list[str]:
    """The requests of pages to brokers from now on, each by its name."""
    counted: list[str] = []
    for name in ("cluster", "topics", "groups", "offsets", "files", "browse", "repair", "naming"):
        # The gateway is frozen, and is discarded with its brokers after the test.
        object.__setattr__(gateway(), name, CountedCalls(getattr(gateway(), name), counted))
    return counted


def taken_ms(do: Callable[[], object]) -> float:
    """Return the CPU time of a call in this process."""
    began = time.process_time()
    do()
    return (time.process_time() - began) * 1_000


def turn() -> None:
    for _ in range(TURNS):
        pass


def server_ms(browser: Client, path: str, ms_max: float) -> float:
    """Return the CPU time of a page, scaled to the machine that the limit is for.

    This is the minimum of some tries, because other load only makes a machine slower.
    """
    found = []
    for _ in range(TRIES):
        pace = min(1.0, TURNS_MS / taken_ms(turn))
        found.append(taken_ms(lambda: browser.get(path)) * pace)
        if min(found) < ms_max:
            break
    return min(found)


def test_each_page_of_a_large_cluster_meets_its_time_limit(actors, brokers) -> None:
    fill(brokers, TOPICS, GROUPS, CONNECTIONS)
    slow = {}

    for page in PAGES:
        assert actors.admin.get(page.path).status_code == 200, page.path
        took = server_ms(actors.admin, page.path, page.ms_max)
        if took >= page.ms_max:
            slow[page.path] = took

    assert slow == {}


def test_the_requests_of_one_more_viewer_do_not_grow_with_the_topics(
    actors, brokers, broker_requests
) -> None:
    """The first viewer of the overview requests everything, every few seconds."""

    def counts() -> dict[str, int]:
        found = {}
        for page in PAGES:
            assert actors.admin.get(page.path).status_code == 200, page.path
            broker_requests.clear()
            actors.admin.get(page.path)
            found[page.path] = len(broker_requests)
        return found

    fill(brokers, FEW, FEW, FEW)
    few = counts()
    fill(brokers, 10 * FEW, 10 * FEW, FEW)
    shared_summary.forget()
    many = counts()

    grown = {path: (few[path], many[path]) for path in few if many[path] > few[path]}
    assert grown == {}
    assert sum(few.values()) > len(PAGES)
