"""Put mutated logs before a page without read access: `python -m tools.fuzz.guarded_records N`.

The compiled record reader gets each log so that it ends where that page begins. Reading a byte
beyond it ends this process.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys

import numpy as np

from analytics.store.bulk import CompiledBulk, chosen
from broker_core.formats.record_columns import RecordBuffer
from tests.support.record_logs import a_log, mutate

ROOM = 16 * mmap.PAGESIZE
RECORDS = 6
MUTATIONS_A_LOG = 10
PARTS = {
    "born_host": "store_timestamp_at",
    "store_host": "store_host_to",
    "topic": "topic_to",
    "body": "body_to",
    "properties": "end",
}


def guarded() -> mmap.mmap:
    """Return memory whose last page must not be touched."""
    memory = mmap.mmap(-1, ROOM + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    behind = ctypes.c_void_p(address + ROOM)
    if libc.mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return memory


def read_on(bulk: CompiledBulk, buffer: RecordBuffer, position: int, part: str) -> int:
    """Read records and one of their parts from a position on; return their number."""
    found = bulk.walk(buffer, position, len(buffer.bytes))
    columns = bulk.columns(buffer, found.positions)
    columns.keep(columns.is_whole)
    data = buffer.bytes
    start, end = columns[f"{part}_from"], columns[PARTS[part]]
    bulk.pieces(data, start, end)
    bulk.encoded(data, start, end)
    bulk.pairs(data, start, end)
    bulk.wrong_checksums(data, start, end, columns["body_crc"])
    return len(found.positions)


def main() -> None:
    mutations = int(sys.argv[1])
    rng = random.Random(int(sys.argv[2]))
    bulk = chosen()
    assert isinstance(bulk, CompiledBulk)
    memory = guarded()
    whole = np.frombuffer(memory, dtype=np.uint8)
    done = records = 0
    while done < mutations:
        log, starts = a_log(rng, RECORDS)
        for _ in range(MUTATIONS_A_LOG):
            mutate(rng, log, starts)
            done += 1
            size = rng.randrange(len(log)) if done % 3 == 0 else len(log)
            whole[ROOM - size : ROOM] = np.frombuffer(log, dtype=np.uint8)[:size]
            buffer = RecordBuffer(whole[ROOM - size : ROOM].data)
            at = min(size, rng.choice([0, *starts]))
            records += read_on(bulk, buffer, at, rng.choice([*PARTS]))
    sys.stdout.write(f"{done} {records}\n")


if __name__ == "__main__":
    main()
