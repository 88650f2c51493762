"""Anomalies of messages and members in a sample: figures and names."""

from __future__ import annotations

from typing import Any

import pytest

from console.gateway.sample import (
    BrokerSample,
    ClientsSample,
    ClockSample,
    ColdReadsSample,
    HeadSample,
    KeySample,
    LargeSample,
    RedeliveredSample,
    VersionsSample,
)
from console.observe.collector.facts import facts_of
from console.observe.collector.figures import Figures
from console.observe.collector.pace import HALF_MS, MESSAGES_MIN, Pace
from console.observe.collector.reading import CLIENTS_MAX, INNER_PRODUCER, Reading
from console.observe.history import metrics
from console.observe.history.metrics import Subject
from tests.support.collector_samples import BOOT_MS, START_MS, Found, sample

T, G, P, B = metrics.TOPIC, metrics.GROUP, metrics.PROGRESS, metrics.BROKER
TOPIC_ROWS = {"T": [0, 0, 5]}
FINDINGS: dict[str, Any] = {
    "clients": [
        ClientsSample("g", {"JAVA v4_9_7": 2, "GO v5_1_4": 1}, {"T: *": 2, "T: A": 1}, ["odd"])
    ],
    "cold_reads": [ColdReadsSample("g", "T", 700)],
    "large": [LargeSample("T", 4_000_000, 0, 4)],
    "keys": [KeySample("T", 640, "vip")],
    "clocks": [ClockSample("10.0.0.5", -42_000, "T"), ClockSample("10.0.0.6", 3_000, "T")],
    "redelivered": [RedeliveredSample("g", 7, "%RETRY%g", 0, 3, "7F01")],
    "heads": [HeadSample("g", "T", 2, 9, "7F02", 112, "10.0.0.5", 0)],
}


def broker_sample(**more: Any) -> BrokerSample:
    return sample(TOPIC_ROWS, {("g", "T"): [0, 3, 5, START_MS]}, members={"g": 3}, **more)


def test_each_problem_has_a_figure() -> None:
    found = Found(broker_sample(), broker_sample(**FINDINGS))

    assert found.of(T, "T", metrics.LARGEST) == 4_000_000
    assert found.of(T, "T", metrics.HOT_KEY) == 640
    assert found.of(G, "g", metrics.VERSIONS) == 2
    assert found.of(G, "g", metrics.MISMATCHED) == 1
    assert found.of(B, "0", metrics.CLOCK_OFF) == 42_000


def test_healthy_clients_have_no_figures_but_known_clocks() -> None:
    fine: dict[str, Any] = {name: [] for name in FINDINGS}

    found = Found(broker_sample(), broker_sample(**fine))

    assert found.of(B, "0", metrics.CLOCK_OFF) == 0
    for kind, name, metric in (
        (T, "T", metrics.LARGEST),
        (T, "T", metrics.HOT_KEY),
        (G, "g", metrics.VERSIONS),
        (G, "g", metrics.MISMATCHED),
    ):
        assert found.of(kind, name, metric) is None


def test_a_broker_that_does_not_report_them_leaves_them_unknown() -> None:
    assert Found(broker_sample(), broker_sample()).of(B, "0", metrics.CLOCK_OFF) is None


def test_members_that_differ_in_one_property_do_not_differ_in_the_other() -> None:
    versions = ClientsSample("g", {"JAVA v4_9_7": 2, "GO v5_1_4": 1}, {"T: *": 3}, [])

    found = Found(broker_sample(), broker_sample(clients=[versions]))

    assert found.of(G, "g", metrics.VERSIONS) == 2
    assert found.of(G, "g", metrics.MISMATCHED) is None


def test_identical_clients_are_counted_by_group() -> None:
    now = broker_sample(
        consumers=[VersionsSample("g", {"JAVA v4_9_7": 2, "GO v5_1_4": 1})],
        producers=[VersionsSample("p", {"JAVA v4_9_7": 4})],
    )

    found = Found(broker_sample(), now)

    assert found.of(metrics.CONSUMERS, "g@JAVA v4_9_7", metrics.MEMBERS) == 2
    assert found.of(metrics.CONSUMERS, "g@GO v5_1_4", metrics.MEMBERS) == 1
    assert found.of(metrics.PRODUCERS, "p@JAVA v4_9_7", metrics.MEMBERS) == 4
    # Another version is another series, and a vanished one has no more figures.
    later = Found(now, broker_sample(consumers=[VersionsSample("g", {"JAVA v5_3_1": 3})]))
    assert later.of(metrics.CONSUMERS, "g@JAVA v5_3_1", metrics.MEMBERS) == 3
    assert later.of(metrics.CONSUMERS, "g@JAVA v4_9_7", metrics.MEMBERS) is None


def test_clients_of_system_groups_and_above_the_limit_of_kinds_are_not_kept() -> None:
    own = [VersionsSample(name, {"JAVA v4_9_7": 1}) for name in ("TOOLS_CONSUMER", INNER_PRODUCER)]
    many = [VersionsSample(f"g{number}", {"GO v5_1_4": 1}) for number in range(CLIENTS_MAX + 1)]

    for sample_now in (broker_sample(consumers=own, producers=own), broker_sample(consumers=many)):
        assert not Found(broker_sample(), sample_now).kinds & {metrics.CONSUMERS, metrics.PRODUCERS}


def test_disk_reads_are_counted_from_sample_to_sample() -> None:
    before = broker_sample(cold_reads=[ColdReadsSample("g", "T", 700)])
    now = broker_sample(cold_reads=[ColdReadsSample("g", "T", 900)])
    restarted = broker_sample(
        cold_reads=[ColdReadsSample("g", "T", 30)], boot_timestamp=BOOT_MS + 1
    )

    assert Found(before, now).of(P, "g@T", metrics.GOT_COLD) == 200
    assert Found(now, restarted).of(P, "g@T", metrics.GOT_COLD) == 30
    assert Found(None, now).of(P, "g@T", metrics.GOT_COLD) is None


def test_findings_about_missing_data_are_left_out() -> None:
    system = broker_sample(
        large=[LargeSample("SCHEDULE_TOPIC_XXXX", 4_000_000, 0, 4)],
        clients=[ClientsSample("TOOLS_CONSUMER", {"a": 1, "b": 1}, {"x": 1, "y": 1}, ["odd"])],
    )

    found = Found(broker_sample(), system)

    assert found.of(T, "SCHEDULE_TOPIC_XXXX", metrics.LARGEST) is None
    assert found.of(G, "TOOLS_CONSUMER", metrics.MISMATCHED) is None


@pytest.mark.parametrize(
    ("subject", "facts"),
    [
        (
            Subject(B, "broker-a", "0"),
            {"host": "10.0.0.5", "way": "behind", "topic": "T", "hosts": "2"},
        ),
        (
            Subject(T, "broker-a", "T"),
            {
                "queues": "1",
                "message_topic": "T",
                "message_queue": "0",
                "message_offset": "4",
                "key": "vip",
            },
        ),
        (
            Subject(G, "broker-a", "g"),
            {
                "kinds": "2 \u00d7 JAVA v4_9_7, 1 \u00d7 GO v5_1_4",
                "wants": "2 \u00d7 T: *, 1 \u00d7 T: A",
                "odd_clients": "odd",
                "message": "7F01",
                "times": "7",
                "message_topic": "%RETRY%g",
                "message_queue": "0",
                "message_offset": "3",
            },
        ),
        (
            Subject(P, "broker-a", "g@T"),
            {
                "head_queue": "2",
                "offset": "9",
                "message": "7F02",
                "host": "10.0.0.5",
                "bytes": "112",
                "times": "0",
            },
        ),
        (Subject(P, "broker-a", "g@U"), {}),
        (Subject(T, "broker-b", "T"), {}),
        (Subject(B, "broker-a", "1"), {}),
    ],
)
def test_the_names_match_the_subject(subject, facts) -> None:
    assert facts_of(broker_sample(**FINDINGS), subject) == facts


class Broker:
    """A topic of some queues, sampled every ten seconds."""

    def __init__(self, queues: int, write_queues: int = 0) -> None:
        self.ends = [0] * queues
        self.write_queues = write_queues
        self._pace = Pace()
        self._before: Reading | None = None
        self._now_ms = START_MS

    def get(self, *added: int, times: int = 1) -> dict[int, int]:
        """Give the queues these message counts in each sample; return shares of hot queues."""
        hot: dict[int, int] = {}
        for _ in range(times):
            self._now_ms += 10_000
            self.ends = [end + more for end, more in zip(self.ends, added, strict=True)]
            rows = [number for queue, end in enumerate(self.ends) for number in (queue, 0, end)]
            result = sample({"T": rows}, sampled_at=self._now_ms)
            result.topics[0] = type(result.topics[0])("T", None, rows, self.write_queues)
            reading = Reading(result, self._before)
            figures = Figures(self._before, reading, self._pace)
            self._before = reading
            codes = figures.codes == metrics.HOT_QUEUE.code
            parts, values = figures.parts[codes].tolist(), figures.values[codes].tolist()
            hot = dict(zip(parts, values, strict=True))
        return hot


def test_a_queue_that_receives_most_is_hot_with_its_share() -> None:
    broker = Broker(4)

    assert broker.get(10, 10, 800, 10, times=10) == {2: 964}


def test_an_even_topic_has_no_hot_queue() -> None:
    assert Broker(4).get(200, 210, 190, 260, times=10) == {}


def test_one_of_two_queues_may_get_twice_as_much() -> None:
    assert Broker(2).get(400, 200, times=10) == {}


def test_few_messages_choose_randomly() -> None:
    assert MESSAGES_MIN > 10 * 50
    assert Broker(4).get(0, 50, 0, 0, times=10) == {}


def test_a_topic_with_one_queue_has_no_choice() -> None:
    assert Broker(1).get(1_000, times=10) == {}


def test_queues_without_any_message_also_count() -> None:
    assert Broker(1, write_queues=4).get(1_000, times=10) == {0: 1000}


def test_a_queue_is_hot_as_long_as_it_receives_most() -> None:
    broker = Broker(4)
    assert broker.get(10, 10, 800, 10, times=10)

    assert broker.get(800, 800, 800, 800, times=2 * HALF_MS // 10_000) == {}
