"""Broker internals: the data on the page and in the operation, and its limits."""

from __future__ import annotations

import pytest

from console.broker.brokers.internals_display import histogram_of
from console.gateway.errors import RequestFailedError
from console.gateway.fakes.cluster import quiet
from console.gateway.internals import Internals, Quarantined, decoded
from tests.console.api.conftest import Program

pytestmark = pytest.mark.django_db

PAGE = "/brokers/b/broker-a/0/inside/"


def test_buckets_go_from_the_first_used_to_the_last_with_their_bounds() -> None:
    found = histogram_of("put", [0.0, 1.0, 10.0, 50.0], [0, 90, 0, 9, 1], [0, 2, 0, 0, 0])

    assert [(each.least_ms, each.most_ms, each.count) for each in found.buckets] == [
        (0.0, 1.0, 90),
        (1.0, 10.0, 0),
        (10.0, 50.0, 9),
        (50.0, None, 1),
    ]
    assert (found.count, found.recent) == (100, 2)
    assert (found.median_ms, found.p99_ms) == (1.0, 50.0)


def test_without_calls_nothing_is_made_up() -> None:
    found = histogram_of("put", [0.0, 1.0], [0, 0, 0], [0, 0, 0])

    assert found.buckets == ()
    assert (found.median_ms, found.p99_ms) == (None, None)


def test_a_broker_shows_its_internals(actors, brokers) -> None:
    html = actors.reader.get(PAGE).content.decode()

    assert "MainThread" in html
    assert "p50 within 1 ms, p99 within 10 ms" in html
    assert "Every record read so far" in html


def test_a_damaged_range_is_shown_with_file_and_offset(actors, brokers) -> None:
    found: Internals = quiet(1)
    range_ = Quarantined(1_073_741_924, 1_073_742_180, "wrong <checksum>", "0" * 20, 100)
    found.quarantine.append(range_)
    brokers.internals = found

    html = actors.reader.get(PAGE).content.decode()

    assert "00000000000000000000" in html
    assert "wrong &lt;checksum&gt;" in html
    assert "256 B" in html


def test_a_broker_without_a_figure_gets_an_explanation_instead_of_a_number(actors, brokers) -> None:
    brokers.internals = RequestFailedError("127.0.0.1:10911", 3, "request type 30017")

    html = actors.reader.get(PAGE).content.decode()

    assert "report their internals" in html
    assert "MainThread" not in html


def test_a_histogram_with_a_missing_bucket_is_ignored() -> None:
    text = b'{"bootTimestamp":1,"threads":[],"reads":{"diskReadBytes":null,"coldMessages":0},'
    text += b'"memory":{"mappedResidentBytes":null,"pageCacheBytes":null,"memoryBytes":null,'
    text += b'"availableBytes":null},"log":{"minOffset":0,"maxOffset":0,"flushedOffset":0},'
    text += b'"latencyBoundsMs":[0.0],"latencies":{"put":[1]},"recent":{},"quarantine":[]}'

    with pytest.raises(ValueError, match="buckets"):
        decoded(text)


def test_programs_can_read_the_same(reader_account, brokers) -> None:
    found = Program(reader_account).get("/brokers/broker-a/0/internals").json()

    assert found["threads"][0]["name"] == "MainThread"
    assert found["latencies"]["put"] == [0, 7, 1, 0]
