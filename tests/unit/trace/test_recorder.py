"""The flight recorder: adjacent deliveries form one span."""

from __future__ import annotations

import tracemalloc

import pytest

from broker_core.trace.event import TraceEvent
from broker_core.trace.recorder import SPAN_BYTES, Recorder, Span
from tests.support.clock import ManualClock

QUEUE = ("group", "Topic", 0)
STORED_MS = ManualClock().now_ms()
BYTES_MAX = 1 << 20
MORE_THAN_FITS = 10_000


@pytest.fixture
def recorder(clock: ManualClock) -> Recorder:
    return Recorder(clock, BYTES_MAX, 10)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def deliver(recorder: Recorder, first: int, end: int, client: str = "c") -> None:
    recorder.delivered(QUEUE, first, end, STORED_MS, 100, client, is_cold=False)


def spans(recorder: Recorder) -> list[tuple[int, int]]:
    entries = recorder.snapshot(0.0)
    return [(each.first, each.end) for each in entries if isinstance(each, Span)]


def test_simultaneous_deliveries_within_a_second_are_one_span(
    recorder: Recorder, clock: ManualClock
) -> None:
    deliver(recorder, 0, 32)
    deliver(recorder, 32, 64)
    clock.advance_ms(1_100)
    deliver(recorder, 64, 96)

    assert spans(recorder) == [(0, 64), (64, 96)]


def test_repeated_requests_of_a_client_use_no_more_space(recorder: Recorder) -> None:
    for _ in range(1_000):
        deliver(recorder, 10, 42)
    assert spans(recorder) == [(10, 42)]

    deliver(recorder, 0, 32)
    deliver(recorder, 0, 32, client="another")

    assert spans(recorder) == [(10, 42), (0, 32), (0, 32)]


def test_a_full_recorder_uses_little_more_than_its_byte_limit(
    clock: ManualClock,
) -> None:
    def spans_of_a_queue(recorder: Recorder, number: int) -> None:
        deliver(recorder, 2 * number, 2 * number + 1, client=f"192.168.100.100@12345#{number}")

    def spans_of_queues(recorder: Recorder, number: int) -> None:
        queue = (f"a-group-with-its-name-{number}", f"a-topic-with-its-name-{number}", 0)
        recorder.delivered(queue, 0, 1, STORED_MS, 100, "c", is_cold=False)

    def events(recorder: Recorder, number: int) -> None:
        recorder.keep(TraceEvent(time_ms=str(number), stage="stored", topic="T" * 30))

    for fill in (spans_of_a_queue, spans_of_queues, events):
        tracemalloc.start()
        recorder = Recorder(clock, BYTES_MAX, 10)
        for number in range(MORE_THAN_FITS):
            fill(recorder, number)
        result, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert BYTES_MAX / 2 < result < BYTES_MAX * 1.5, fill.__name__


def test_old_events_are_dropped_even_without_requests(
    recorder: Recorder, clock: ManualClock
) -> None:
    for number in range(1_000):
        queue = ("group", f"Topic-{number}", 0)
        recorder.delivered(queue, 0, 1, STORED_MS, 100, "c", is_cold=False)
    kept = recorder.spans["group", "Topic-0", 0]
    clock.advance_ms(5 * 60_000)
    deliver(recorder, 0, 1)
    clock.advance_ms(5 * 60_000 + 1_000)
    deliver(recorder, 1, 2)

    assert (len(recorder), recorder.byte_count) == (2, 2 * SPAN_BYTES)
    assert list(recorder.spans) == [QUEUE]
    assert kept == []


def test_a_message_acknowledged_after_its_span_was_dropped_is_skipped(
    recorder: Recorder, clock: ManualClock
) -> None:
    deliver(recorder, 0, 4)
    clock.advance_ms(11 * 60_000)
    deliver(recorder, 4, 8)

    recorder.acknowledged(QUEUE, 8, "c")

    assert spans(recorder) == [(4, 8)]
    assert recorder.spans[QUEUE][-1].acknowledged_by == "c"


def test_a_list_of_spans_is_empty_once_it_is_dropped(
    recorder: Recorder,
) -> None:
    deliver(recorder, 0, 4)
    kept = recorder.spans[QUEUE]

    recorder.clear()
    deliver(recorder, 4, 8)

    assert kept == []
    assert spans(recorder) == [(4, 8)]


def test_the_wait_that_prolongs_a_span_is_reported_by_the_wall_time_of_its_start(
    recorder: Recorder, clock: ManualClock
) -> None:
    deliver(recorder, 0, 4)
    clock.advance_ms(300)
    clock.step_wall_clock_ms(-60_000)
    deliver(recorder, 4, 8)
    # Nonsense from a damaged record.
    recorder.delivered(QUEUE, 8, 9, -(1 << 63), 100, "c", is_cold=False)

    (span,) = recorder.snapshot(0.0)
    assert not isinstance(span, tuple)
    assert span.worst_ms == clock.now_ms() + 60_000
    assert span.worst == 8


def test_a_span_reports_skipped_messages_and_whose_latency_it_has(
    recorder: Recorder,
) -> None:
    deliver(recorder, 0, 4)
    recorder.delivered(QUEUE, 9, 12, STORED_MS, 100, "c", is_cold=False, handed_out=10)

    whole, sifted = (each.event for each in recorder.events_of(recorder.snapshot(0.0)))

    assert (whole.sifted, whole.worst_offset) == (None, "0")
    assert (sifted.sifted, sifted.worst_offset) == (True, "10")
