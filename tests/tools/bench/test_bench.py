"""The comparison with other brokers: counted messages are stored; verdicts match the figures."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker_core.protocol.codes import RequestCode
from tests.support.raw_remoting import GET_MAX_OFFSET, SUCCESS, RawClient
from tests.support.waiting import until
from tools.bench import floor, kafka, loads
from tools.bench.__main__ import parse
from tools.bench.cells import (
    ASYNC,
    BATCH,
    CELLS,
    DELAYED_TOPIC,
    FLUSH,
    ONE_IN_TEN,
    PAIR,
    QUEUES,
    TAGGED,
    TOPIC,
    Cell,
)
from tools.bench.comparison import BASE, Results, Sample
from tools.bench.contenders import BATCHES, NAMES, OURS, PYTHON, cell_of, running
from tools.bench.peer_comparison import ONE_SEND, WARM_UP, known_cells, plan_of, pulls_first
from tools.results import documents
from tools.results.documents import Comparison, Ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.bench.contenders import Running

BY_KEY = {cell.key: cell for cell in CELLS}
SECONDS = 0.05


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(PYTHON, "ASYNC_FLUSH", tmp_path_factory.mktemp("bench")) as found:
        yield found


def stored(broker: Running, topic: str) -> int:
    with RawClient(broker.ports[0]) as client:
        fields = [{"topic": topic, "queueId": str(queue)} for queue in range(QUEUES)]
        return sum(int(client.ask(GET_MAX_OFFSET, one).fields["offset"]) for one in fields)


@pytest.mark.parametrize("key", ["send-16x16", "batch-100", "end-to-end"])
def test_each_counted_message_is_stored(broker: Running, key: str) -> None:
    before = stored(broker, TOPIC)

    loaded = loads.run(broker.ports, BY_KEY[key], SECONDS)

    assert loaded.messages == stored(broker, TOPIC) - before > 0
    per_request = BY_KEY[key].messages
    assert len(loaded.nanoseconds) * per_request == loaded.messages
    assert min(loaded.nanoseconds) > 0


def test_each_counted_transaction_is_committed(broker: Running) -> None:
    before = stored(broker, TOPIC)

    loaded = loads.run(broker.ports, BY_KEY["transaction"], SECONDS)

    until(
        lambda: stored(broker, TOPIC) - before == loaded.messages,
        "every half message to be committed",
    )


def test_one_message_in_ten_is_delayed_and_one_in_ten_has_the_tag(broker: Running) -> None:
    delayed = loads.run(broker.ports, BY_KEY["delay"], SECONDS)
    at_once = stored(broker, DELAYED_TOPIC)
    loads.run(broker.ports, Cell("seeded", "", TAGGED), SECONDS)

    assert delayed.messages - at_once <= delayed.messages // ONE_IN_TEN + 1
    until(
        lambda: stored(broker, DELAYED_TOPIC) == delayed.messages, "delayed messages to be stored"
    )
    with RawClient(broker.ports[0]) as client:
        pull = BY_KEY["pull-tag"].requests[0]
        answer = client.ask(pull.code, pull.fields)
    found = loads.pulled(broker.ports[0], BY_KEY["pull-tag"])
    passed = int(answer.fields["nextBeginOffset"])
    assert passed // ONE_IN_TEN <= found <= passed // ONE_IN_TEN + 1


@pytest.mark.parametrize("setting", [ASYNC, FLUSH])
def test_the_floor_server_answers_like_the_broker(
    broker: Running, setting: str, tmp_path: Path
) -> None:
    pull = BY_KEY["pull-32"].requests[0]
    with floor.running(broker.ports[0], setting, tmp_path / "kept") as (port, pid, _):
        before = stored(broker, TOPIC)
        loaded = loads.run([port], BY_KEY["small-4x64"], SECONDS)
        with RawClient(broker.ports[0]) as behind, RawClient(port) as client:
            found = behind.ask(pull.code, pull.fields).body
            assert [client.ask(pull.code, pull.fields).body for _ in range(3)] == [found] * 3
            assert client.ask(RequestCode.GET_BROKER_CONFIG).code == SUCCESS
        # The files are already unlinked.
        assert re.search(
            r"/kept/\d+ \(deleted\)$", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE
        )
    assert loaded.messages >= 4 * 64
    # Only first answers came from the broker, one for each length of a frame.
    assert 0 < stored(broker, TOPIC) - before < 10


def test_the_floor_server_writes_an_entry_for_each_queue_in_turn(
    broker: Running, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    with floor.running(broker.ports[0], ASYNC, kept, queues=3) as (port, pid, _):
        loaded = loads.run([port], BY_KEY["small-4x64"], SECONDS)
        maps = Path(f"/proc/{pid}/maps").read_text()
        found = []
        with Path(f"/proc/{pid}/mem").open("rb") as memory:
            for begin in re.findall(r"^(\w+)-.*/kept/queue-\d+ \(deleted\)$", maps, re.MULTILINE):
                memory.seek(int(begin, 16))
                entries = struct.iter_unpack("=QQi", memory.read(loaded.messages * 20))
                found.append(sum(size > 0 for _, size, _ in entries))
    assert loaded.messages >= 4 * 64
    assert len(found) == 3
    assert sum(found) == loaded.messages
    assert max(found) - min(found) <= 1


def test_a_rejected_request_ends_the_measurement(broker: Running) -> None:
    wrong = Cell("wrong", "", BY_KEY["pull-1"].requests)
    one = wrong.requests[0]
    unknown = Cell("wrong", "", [type(one)(one.code, one.fields | {"topic": "Unknown"}, queue=0)])

    with pytest.raises(AssertionError, match="Unknown"):
        loads.run(broker.ports, unknown, SECONDS)


def sample(cost: float, rate: float) -> Sample:
    return Sample(rate, cost, 0.0, 1.0, 2.0, 3.0)


def results(ours: list[Sample], theirs: list[Sample]) -> Results:
    found = Results({"python": "3.11"}, [BY_KEY["send-64"]], [OURS, BASE])
    found.samples["send-64", OURS] += ours
    found.samples["send-64", BASE] += theirs
    found.start_seconds[OURS, "an empty store"].append(0.5)
    return found


@pytest.mark.parametrize(
    ("cost", "rate", "words"),
    [
        (2.5, 2000.0, "(reached: cost ≤ 0.25, rate ≥ 2)"),
        (2.6, 2000.0, "(NOT reached: cost ≤ 0.25, rate ≥ 2)"),
        (2.5, 1900.0, "(NOT reached: cost ≤ 0.25, rate ≥ 2)"),
    ],
)
def test_a_cell_meets_its_target_if_both_cost_and_rate_do(
    cost: float, rate: float, words: str
) -> None:
    found = results([sample(cost, rate)], [sample(10.0, 1000.0)])

    assert words in found.table()
    cell = found.document("command").cell("send-64")
    assert cell.is_reached(OURS) is words.startswith("(reached")


def test_ratios_compare_adjacent_slices_so_a_slower_machine_changes_none() -> None:
    ours, theirs = (
        [sample(1.0, 400.0), sample(3.0, 100.0)],
        [sample(5.0, 200.0), sample(15.0, 50.0)],
    )

    found = results(ours, theirs).verdict(BY_KEY["send-64"])

    assert found is not None
    assert (found.cost, found.rate) == (0.2, 2.0)


def test_medians_are_written_as_data_and_into_the_marked_part_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "performance.md"
    page.parent.mkdir()
    page.write_text("before\n<!-- result: comparison -->\nold\n<!-- end of result -->\nafter\n")
    measured = results([sample(1.0, 2000.0)], [sample(10.0, 1000.0)])

    measured.write_into(page.parent, "the command")

    found = documents.read(page.parent, "comparison", Comparison)
    assert found == measured.document("the command")
    assert found.cell("send-64").ratios[OURS] == Ratio(0.1, 2.0)
    text = page.read_text()
    assert text.startswith("before\n<!-- result: comparison -->\n`the command`")
    assert text.endswith("<!-- end of result -->\nafter\n")
    assert "old" not in text
    assert "0.10" in (page.parent / "images" / "performance.svg").read_text()


@pytest.mark.parametrize(
    "words", ["--quick", "--cells send-64", "--brokers ours,5.3.3", "--store-gib 0"]
)
def test_an_incomplete_comparison_is_not_published(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "--write", "docs", *words.split()])

    with pytest.raises(ValueError, match="publishes every cell"):
        plan_of(parse())


def test_every_setting_has_cells_and_every_cell_its_own_name() -> None:
    assert len(BY_KEY) == len({cell.name for cell in CELLS}) == len(CELLS)
    assert {cell.setting for cell in CELLS} == {"ASYNC_FLUSH", FLUSH, PAIR}


@pytest.mark.parametrize("name", NAMES)
def test_every_broker_of_every_contender_is_warmed_up(name: str) -> None:
    assert all(cell_of(name, each) is not None for each in (ONE_SEND, WARM_UP))


def test_pulls_are_measured_before_sends_push_their_data_far_back() -> None:
    ordered = [cell.key for cell in pulls_first(known_cells(["send-64", "pull-32", "pull-1"]))]

    assert ordered == ["pull-32", "pull-1", "send-64"]


def test_an_unknown_cell_is_rejected_with_the_valid_ones() -> None:
    with pytest.raises(ValueError, match=r"'send-63' isn't one of: send-1, send-64, "):
        known_cells(["send-64", "send-63"])


def test_kafkas_checksum_matches_the_published_example() -> None:
    assert kafka.crc32c(b"123456789") == 0xE3069283


def test_kafka_takes_part_in_sends_and_pulls_with_batches_and_without() -> None:
    names = {
        name: {cell.key for cell in CELLS if cell_of(name, cell) is not None} for name in BATCHES
    }

    of_one, of_batches = names["kafka"], names["kafka batched"]
    sends = {cell.key for cell in CELLS if cell.requests is BY_KEY["send-1"].requests}
    sends -= {"end-to-end", "pair-64"}
    assert of_one == sends | {"small-4x64", "pull-32", "pull-1"}
    assert of_batches == sends | {"small-4x64", "pull-32", "batch-100", "batch-1k"}


def test_kafka_is_sent_messages_of_the_same_size() -> None:
    for key, size in (("send-64", 1024), ("batch-1k", 1024), ("batch-100", 100)):
        cell = cell_of("kafka batched", BY_KEY[key])
        assert cell is not None
        assert cell.messages == BATCH
        body = BATCH * size
        assert body < len(cell.requests[0].frame(1, 0)) < body + BATCH * 16 + 200
