"""The benchmarks of growth and of a steady load: their brokers grow, their figures are right."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.support.log_end import log_end
from tests.support.raw_remoting import GET_MAX_OFFSET, RawClient, create_topic, read_queue
from tools.bench import loads
from tools.bench.cells import ASYNC, QUEUES, TOPIC, a_pull
from tools.bench.contenders import LOG_FILE_BYTES, PYTHON, running
from tools.bench.growth.__main__ import write_blank_files
from tools.bench.sustained.__main__ import ROLL_SECONDS, Answers, Slice, SteadySender, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tools.bench.contenders import Running

RATE = 500
MILLISECOND = 1_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(PYTHON, ASYNC, tmp_path_factory.mktemp("bench")) as found:
        yield found


def in_queue(port: int, queue: int, topic: str = TOPIC) -> int:
    with RawClient(port) as client:
        fields = {"topic": topic, "queueId": str(queue)}
        return int(client.ask(GET_MAX_OFFSET, fields).fields["offset"])


class EndedError(Exception):
    """A reader has continued the requested number of times."""


class Going:
    """Lets a reader continue a number of times."""

    def __init__(self, times: int) -> None:
        self._left = times

    def is_set(self) -> bool:
        return False

    def wait(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise EndedError


def test_each_queue_with_a_consumer_gets_its_share(broker: Running) -> None:
    before = [in_queue(broker.ports[0], queue) for queue in range(QUEUES)]

    with loads.EndToEnd(broker.ports[0], QUEUES) as both:
        first, second = both.run(0.01), both.run(0.01)

    shares = {in_queue(broker.ports[0], queue) - was for queue, was in enumerate(before)}
    assert shares == {(first.messages + second.messages) // QUEUES}


def test_a_broker_starts_after_files_with_holes_and_continues(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_blank_files(store / "commitlog", 3)

    with running(PYTHON, ASYNC, tmp_path / "broker", store=store) as one:
        create_topic(one.ports[0], TOPIC)
        with loads.EndToEnd(one.ports[0], 1) as both:
            sent = both.run(0.01).messages

        # The last one, with no message after it, is rewritten.
        assert log_end(one.ports[0]) > 2 * LOG_FILE_BYTES
        records = read_queue(one.ports[0], TOPIC, 0)
    assert len(records) == sent
    assert sum(path.stat().st_blocks for path in (store / "commitlog").iterdir()) * 512 < 600 << 20


def test_a_reader_counts_from_the_beginning(broker: Running) -> None:
    with loads.EndToEnd(broker.ports[0], 1) as both:
        both.run(0.1)
    reading = SimpleNamespace(value=0)

    with pytest.raises(EndedError):
        loads.pull_all(broker.ports[0], Going(2), reading)  # type: ignore[arg-type]

    request = a_pull(32)
    with RawClient(broker.ports[0]) as client:
        bodies = [
            client.ask(request.code, request.fields | {"queueOffset": str(offset)}).body
            for offset in (0, 32)
        ]
    assert reading.value == sum(map(len, bodies)) > 0


def test_a_reader_with_a_rate_limit_reads_no_faster(broker: Running) -> None:
    with loads.EndToEnd(broker.ports[0], 1) as both:
        both.run(0.1)
    reading = SimpleNamespace(value=0)
    rate = 1_000_000
    began = time.perf_counter()

    with pytest.raises(EndedError):
        loads.pull_all(broker.ports[0], Going(2), reading, rate)  # type: ignore[arg-type]

    assert time.perf_counter() - began >= reading.value / rate > 0


def test_a_steady_sender_keeps_its_rate_and_reports_each_answers_delay(
    broker: Running,
) -> None:
    before = sum(in_queue(broker.ports[0], queue) for queue in range(QUEUES))
    sender = SteadySender(broker.ports[0], RATE, LOG_FILE_BYTES)

    found = sender.run(0.3)
    found_more = sender.run(0.3)
    sender.socket.close()

    due = found.due + found_more.due
    spaces = {later - earlier for earlier, later in itertools.pairwise(due)}
    assert max(spaces) - min(spaces) <= 1
    assert min(spaces) == pytest.approx(1e9 / RATE, abs=1)
    assert min(found.latencies) > 0
    assert sum(in_queue(broker.ports[0], queue) for queue in range(QUEUES)) - before >= len(due)
    assert found.rolls == found_more.rolls == []


def test_sends_near_a_roll_are_separate_from_the_others() -> None:
    reach = int(ROLL_SECONDS * 1e9)
    answers = Answers()
    answers.rolls = [10 * reach, 20 * reach]
    answers.due.extend(reach * number for number in (8, 9, 11, 12, 20, 30))
    answers.latencies.extend(range(1, 7))

    near, others = answers.split_at_rolls()

    assert (near.tolist(), others.tolist()) == ([2, 3, 5], [1, 4, 6])


def test_a_slices_figures_are_those_of_its_sends_in_order() -> None:
    answers = Answers()
    answers.due.extend(range(1001))
    answers.latencies.extend(number * MILLISECOND for number in range(1000, -1, -1))

    found = Slice.of(answers, 10.0, 5_000_000, 30_000_000)

    assert found == (100.1, 500.0, 990.0, 999.0, 0.0, 5.0, 3.0)


def slice_of(p999: float, roll: float, megabytes: float) -> Slice:
    return Slice(RATE, 0.1, 1.0, p999, roll, megabytes, 0.0)


@pytest.mark.parametrize(
    ("odd", "reached"),
    [
        (slice_of(4.9, 19.0, 50.0), [True, True, True]),
        (slice_of(5.1, 19.0, 50.0), [False, True, True]),
        (slice_of(4.9, 20.1, 50.0), [True, False, True]),
        (slice_of(4.9, 19.0, 90.0), [True, True, False]),
    ],
)
def test_a_steady_load_is_judged_by_its_worst_slice_and_by_growth(
    odd: Slice, reached: list[bool]
) -> None:
    slices = [slice_of(90.0, 90.0, 9.0)] * 6 + [slice_of(1.0, 1.0, 50.0)] * 2 + [odd] * 2

    assert [is_reached for _, is_reached in verdicts(slices)] == reached


def test_a_slice_reports_the_latest_send_at_a_roll() -> None:
    answers = Answers()
    answers.due.extend(list(range(0, 1000 * MILLISECOND, MILLISECOND)))
    answers.latencies.extend([MILLISECOND] * 1000)
    answers.latencies[500] = 9 * MILLISECOND
    answers.rolls = [500 * MILLISECOND]

    found = Slice.of(answers, 1.0, 5_000_000, 0)

    assert found == Slice(1000.0, 1.0, 1.0, 1.0, 9.0, 5.0, 0.0)
