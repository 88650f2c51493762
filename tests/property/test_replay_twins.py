"""Python and compiled code dispatch a slave's log the same way, whatever arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.errors import ReplicationError
from broker_core.native import loading
from broker_core.store.bulk_scan import BulkScan
from tests.support.builders import a_store, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tests.support.twins import is_compiled
from tests.unit.store.test_replay import a_mixture, a_slave, log_of, queues_of, receive

if TYPE_CHECKING:
    import random

DAMAGED_LOGS = 4


async def replayed_state(data: bytes, size: int, *, is_compiled: bool) -> list[Any]:
    """Return a slave's files and state after it received data in pieces."""
    slave = a_slave(ManualClock())
    await slave.start()
    if is_compiled:
        twin = loading.load({loading.VARIABLE: "1"}).plain_replay
        assert twin is not None
        slave.replay.use(twin)
    refusal = None
    try:
        receive(slave, data, size)
    except ReplicationError as error:
        refusal = str(error)
    files = slave.files
    assert files.index is not None
    found = [
        refusal,
        log_of(slave),
        queues_of(slave),
        list(files.index.waiting),
        files.index.room,
        slave.put_total,
        files.put_state.store_timestamp,
        slave.replay.dispatched_where,
        [(q.topic, q.queue_id, q.position, q.max_offset, q.dirty) for q in files.queues],
    ]
    await slave.shutdown()
    return found


@pytest.mark.skipif(
    not is_compiled(), reason="nothing compiled: python -m broker_core.native.build"
)
@pytest.mark.parametrize("size", [1, 100, 5_000, 60_000])
async def test_both_twins_of_the_replay_leave_the_same(size: int, rng: random.Random) -> None:
    master = a_store(ManualClock(), FaultyStorage(), store_config(max_index_num=20_000))
    master.load()
    await master.start()
    a_mixture(master, 30 if size == 1 else 150, seed=rng.randrange(1 << 30))
    data = log_of(master)
    await master.shutdown()
    logs = [data]
    for _ in range(1 if size == 1 else DAMAGED_LOGS):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        logs.append(bytes(damaged))

    for log in logs:
        python = await replayed_state(log, size, is_compiled=False)
        compiled = await replayed_state(log, size, is_compiled=True)

        assert python[2], "queues have units"
        assert python == compiled


@pytest.mark.skipif(
    not is_compiled(), reason="nothing compiled: python -m broker_core.native.build"
)
async def test_many_complex_records_are_dispatched_as_arrays_by_both(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    advance = BulkScan.advance

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return advance(*arguments)

    monkeypatch.setattr(BulkScan, "advance", counted)
    monkeypatch.setattr("broker_core.store.replay.BULK_BYTES_MIN", 2_000)
    monkeypatch.setattr("broker_core.store.replay.SINGLE_RECORDS", 3)
    master = a_store(ManualClock(), FaultyStorage(), store_config(max_index_num=20_000))
    master.load()
    await master.start()
    a_mixture(master, 150, seed=rng.randrange(1 << 30))
    data = log_of(master)
    await master.shutdown()

    python = await replayed_state(data, 60_000, is_compiled=False)
    by_python, calls = calls, 0
    compiled = await replayed_state(data, 60_000, is_compiled=True)

    assert min(by_python, calls) > 0
    for found in (python, compiled):
        # Arrays write the index entries of the records before them.
        del found[3:5]
    assert python == compiled
