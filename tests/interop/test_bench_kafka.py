"""The comparison's Kafka loads: counted messages are stored, and an error ends them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tools.bench import kafka, loads, peer_comparison
from tools.bench.cells import ASYNC, BATCH, CELLS, QUEUES
from tools.bench.contenders import cell_of, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.bench.cells import Cell
    from tools.bench.contenders import Running

pytestmark = pytest.mark.interop

BY_KEY = {cell.key: cell for cell in CELLS}
SECONDS = 0.1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running("kafka batched", ASYNC, tmp_path_factory.mktemp("kafka")) as found:
        yield found


def cell_named(name: str, key: str) -> Cell:
    found = cell_of(name, BY_KEY[key])
    assert found is not None
    return found


def stored(broker: Running) -> int:
    return sum(kafka.high_watermark(broker.ports[0], queue) for queue in range(QUEUES))


@pytest.mark.parametrize(
    ("name", "key"),
    [("kafka", "send-16x16"), ("kafka batched", "send-64"), ("kafka batched", "batch-100")],
)
def test_each_counted_record_is_stored(broker: Running, name: str, key: str) -> None:
    cell = cell_named(name, key)
    before = stored(broker)

    loaded = loads.run(broker.ports, cell, SECONDS)

    assert loaded.messages == stored(broker) - before > 0
    assert len(loaded.nanoseconds) * cell.messages == loaded.messages


def test_an_initial_store_is_filled(broker: Running) -> None:
    filling = cell_of("kafka batched", peer_comparison.FILLING)
    assert filling is not None
    before = stored(broker)

    assert loads.run(broker.ports, filling, SECONDS).messages == stored(broker) - before > 0


def test_a_pull_finds_a_batch(broker: Running) -> None:
    cell = cell_named("kafka batched", "pull-32")

    assert loads.pulled(broker.ports[0], cell) == BATCH
    assert loads.run(broker.ports, cell, SECONDS).messages > 0


def test_a_rejected_request_ends_the_measurement(broker: Running) -> None:
    cell = cell_named("kafka", "send-64")
    damaged = [
        replace(one, tail=one.tail[:-4] + b"\1" + one.tail[-3:])
        for one in cell.requests
        if isinstance(one, kafka.KafkaRequest)
    ]

    with pytest.raises(AssertionError, match="Kafka's error"):
        loads.run(broker.ports, replace(cell, requests=damaged), SECONDS)
