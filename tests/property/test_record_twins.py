"""The compiled record reader and its numpy twin find the same in any bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from analytics.store import bulk as bulk_module, log_files, plan as plan_module, read as read_module
from analytics.store.bulk import CompiledBulk, NumpyBulk
from analytics.store.decode import COLUMN_TYPES, CheckCrc, RecordDecoder, RowFilter
from analytics.store.reader import StoreReader
from broker_core.formats import paths, record
from broker_core.formats.record_columns import RecordBuffer
from broker_core.native.loading import load_records
from tests.support.record_logs import a_log, mutate

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from analytics.store.bulk import Bulk

NATIVE = load_records()
MUTATIONS = int(os.environ.get("TREBUCHET_FUZZED_RECORDS", "20000"))
RECORDS, MUTATIONS_A_LOG = 200, 100
STORES = 25
SECONDS_MAX = 600
EVERYTHING = pa.schema(list(COLUMN_TYPES.items()))
EVERY_ROW = RowFilter(include_system_topics=True)
ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.skipif(
    NATIVE is None, reason="nothing compiled: python -m broker_core.native.build"
)


def twins() -> tuple[Bulk, Bulk]:
    assert NATIVE is not None
    return CompiledBulk(NATIVE), NumpyBulk()


def side_by_side(log: bytearray, starts: list[int]) -> np.ndarray[Any, Any]:
    """Return the starts of fitting records that don't extend into the next."""
    found: list[int] = []
    for at in starts:
        if len(log) - at < record.OVERHEAD_V4 or (found and at < _end(log, found[-1])):
            continue
        if record.OVERHEAD_V4 <= _end(log, at) - at <= len(log) - at:
            found.append(at)
    return np.array(found, dtype=np.int64)


def _end(log: bytearray, at: int) -> int:
    return at + int.from_bytes(log[at : at + 4], signed=True)


def test_both_make_the_same_rows_and_damage_from_20000_mutations(
    rng: random.Random,
) -> None:
    compiled, python = twins()
    bad_ones = 0
    for number in range(MUTATIONS // MUTATIONS_A_LOG):
        log, starts = a_log(rng, RECORDS)
        for _ in range(MUTATIONS_A_LOG):
            mutate(rng, log, starts)
        buffer = RecordBuffer(log)
        for at in [0, *rng.sample(starts, 8)]:
            limit = rng.choice([len(log), rng.randrange(at, len(log) + 1)])
            walks = [each.walk(buffer, at, limit) for each in (compiled, python)]
            assert walks[0].positions.tolist() == walks[1].positions.tolist()
            assert walks[0][1:] == walks[1][1:]
        positions = side_by_side(log, starts)
        rows = EVERY_ROW if number % 2 else RowFilter(queue_ids=frozenset({1, 2, 5}))
        check_crc = list(CheckCrc)[number % 3]
        (batch, bad), (expected, expected_bad) = [
            RecordDecoder(EVERYTHING, rows, check_crc=check_crc, bulk=each).decode(
                buffer, positions, 0
            )
            for each in (compiled, python)
        ]
        assert bad == expected_bad
        assert batch.equals(expected), [
            name for name in batch.schema.names if not batch[name].equals(expected[name])
        ]
        batch.validate(full=True)
        bad_ones += len(bad)
    assert bad_ones > MUTATIONS // MUTATIONS_A_LOG


def test_both_read_the_same_from_damaged_and_torn_stores(
    rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "CHUNK_BYTES", 8192)
    damaged = 0
    for number in range(STORES):
        log, starts = a_log(rng, RECORDS)
        for _ in range(number % 7):
            mutate(rng, log, starts)
        if number % 2:
            # Torn in the middle of a record, followed by zeros.
            torn_at = rng.randrange(len(log))
            log[torn_at:] = bytes(len(log) - torn_at)
        root = tmp_path / str(number)
        directory = paths.StorePaths.of(str(root), "").commit_log
        directory.mkdir(parents=True)
        (directory / paths.offset_file_name(0)).write_bytes(log)
        found, expected = [_seen(root, each, monkeypatch) for each in twins()]
        assert found == expected
        damaged += any(row["damage"] for row in found[1])
    assert damaged


def _seen(root: Path, bulk: Bulk, monkeypatch: pytest.MonkeyPatch) -> tuple[object, list[Any]]:
    """Return a store's plan, and every row and damage of it."""
    for module in (bulk_module, plan_module, read_module):
        monkeypatch.setattr(module, "chosen", lambda: bulk)
    monkeypatch.setattr("analytics.store.decode.chosen", lambda: bulk)
    reader = StoreReader(root)
    plan = reader.plan()
    rows: list[Any] = []
    for split in plan.splits:
        for batch in reader.read(
            split, EVERYTHING, EVERY_ROW, check_crc=CheckCrc.TRUE, fail_on_data_loss=False
        ):
            rows += batch.to_pylist()
    ends = [reader.end_from(0, most) for most in (None, 1, 5000)]
    return (plan, ends), rows


def test_no_mutation_makes_it_read_beyond_the_buffer(rng: random.Random) -> None:
    command = [sys.executable, "-m", "tools.fuzz.guarded_records", str(MUTATIONS)]
    done = subprocess.run(
        [*command, str(rng.randrange(2**32))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )

    assert done.returncode != -signal.SIGSEGV, command
    assert done.returncode == 0, done.stderr
    mutations, records = map(int, done.stdout.split())
    assert mutations == MUTATIONS
    assert records > mutations


def test_texts_of_every_length_are_distinguished(rng: random.Random) -> None:
    compiled, python = twins()
    texts = [rng.randbytes(size) for size in range(70) for _ in range(3)]
    # One byte differs, anywhere.
    texts += [
        text[:at] + bytes([text[at] ^ 1 << rng.randrange(8)]) + text[at + 1 :]
        for text in texts[::3]
        for at in range(len(text))
    ]
    texts += texts[::2]
    edges = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    data = np.frombuffer(b"".join(texts), dtype=np.uint8)

    codes, distinct = compiled.encoded(data, edges[:-1], edges[1:])
    expected, expected_distinct = python.encoded(data, edges[:-1], edges[1:])

    assert distinct == expected_distinct == list(dict.fromkeys(texts))
    assert codes.tolist() == expected.tolist()


def _ints(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, dtype=np.int64)


DATA = bytearray(100)
PLACES = {
    "behind the end": (_ints(0), _ints(101)),
    "before the beginning": (_ints(-1), _ints(5)),
    "the wrong way round": (_ints(9), _ints(8)),
    "of another number": (_ints(1, 2), _ints(3)),
}
USES: dict[str, Callable[[Any, Any, Any], object]] = {
    "gather": lambda native, start, end: native.gather(
        DATA, start, end, np.zeros(2, np.int32), np.zeros(4, np.uint8)
    ),
    "encode": lambda native, start, end: native.encode(DATA, start, end, _ints(0), _ints(0)),
    "pairs": lambda native, start, end: native.pairs(
        DATA, start, end, _ints(0), _ints(0), _ints(0), _ints(0)
    ),
    "wrong_checksums": lambda native, start, end: native.wrong_checksums(
        DATA, start, end, _ints(0), np.zeros(1, np.uint8)
    ),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("places", PLACES)
def test_offsets_outside_the_buffer_are_rejected(use: str, places: str) -> None:
    with pytest.raises(ValueError, match=r"place|arrays"):
        USES[use](NATIVE, *PLACES[places])


@pytest.mark.parametrize("at", [-1, 10, 2**40])
def test_a_record_outside_the_buffer_is_rejected(at: int) -> None:
    compiled, _ = twins()

    with pytest.raises(ValueError, match="not in the buffer"):
        compiled.columns(RecordBuffer(DATA), _ints(at))


@pytest.mark.parametrize(
    ("position", "limit", "room"), [(-1, 100, 9), (0, 101, 9), (9, 8, 9), (0, 100, 0)]
)
def test_a_walk_outside_the_buffer_or_without_space_is_rejected(
    position: int, limit: int, room: int
) -> None:
    assert NATIVE is not None
    with pytest.raises(ValueError, match=r"buffer|room"):
        NATIVE.walk(DATA, position, limit, np.zeros(room, dtype=np.int64))


def test_arrays_of_another_kind_are_rejected() -> None:
    assert NATIVE is not None
    with pytest.raises(ValueError, match="another size"):
        NATIVE.walk(DATA, 0, 100, np.zeros(9, dtype=np.int32))
    with pytest.raises(ValueError, match="another size"):
        NATIVE.last_of_each(_ints(0), _ints(0), 2, np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="another size"):
        NATIVE.pairs(DATA, _ints(0), _ints(9), _ints(0), _ints(0), _ints(0), _ints(0, 0))
    with pytest.raises(ValueError, match="a code"):
        NATIVE.last_of_each(_ints(0), _ints(1), 1, np.zeros(1, np.uint8))
    with pytest.raises((BufferError, ValueError)):
        NATIVE.walk(DATA, 0, 100, bytes(80))


def test_zero_and_a_machine_without_it_choose_numpy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert load_records({"TREBUCHET_NATIVE": "0"}) is None

    monkeypatch.setattr("broker_core.native.paths.BUILT", tmp_path)

    assert load_records({}) is None
