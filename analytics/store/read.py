"""Reads a split in chunks of complete records, skipping damage.

Invariant: reading a split yields each sound record once and reports each unreadable range once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analytics.store import log_files
from analytics.store.bulk import chosen
from analytics.store.decode import (
    FILE_GONE,
    FILE_SHORTER,
    Damage,
    RecordDecoder,
    may_be_record,
)
from analytics.store.log_files import (
    magics_from,
    opened,
    pread,
    read_problem,
    record_problem,
    sound_size,
)
from broker_core.formats import record
from broker_core.formats.record_columns import RecordBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from analytics.store.consume_queues import ConsumeQueues
    from analytics.store.plan import Split

# With more damage than this, the rest of a split is skipped, because its disk is failing.
DAMAGES_PER_SPLIT_MAX = 1000


class SplitReading:
    """Reads one split once.

    Attributes:
        damages: the unreadable ranges so far.
    """

    def __init__(self, split: Split, decoder: RecordDecoder, queues: ConsumeQueues) -> None:
        self.damages: list[Damage] = []
        self._split = split
        self._decoder = decoder
        self._queues = queues
        self._chunk_bytes = log_files.CHUNK_BYTES

    def batches(self) -> Iterator[pa.RecordBatch]:
        split = self._split
        try:
            with opened(Path(split.path)) as descriptor:
                yield from self._batches(descriptor)
        except FileNotFoundError:
            # The file never existed, or has expired since the plan was made.
            self._damage(split.commit_log_from, split.commit_log_to, FILE_GONE)
        except OSError as error:
            self._damage(split.commit_log_from, split.commit_log_to, read_problem(error))

    def _batches(self, descriptor: int) -> Iterator[pa.RecordBatch]:
        split = self._split
        position, to = split.commit_log_from, split.commit_log_to
        buffer = np.empty(min(self._chunk_bytes, to - position), dtype=np.uint8)
        while position < to:
            if len(self.damages) >= DAMAGES_PER_SPLIT_MAX:
                self._damage(position, to, "skipped after too much damage")
                return
            wanted = min(self._chunk_bytes, to - position)
            if wanted > len(buffer):
                buffer = np.empty(wanted, dtype=np.uint8)
            try:
                got = pread(descriptor, buffer[:wanted], position - split.file_from_offset)
            except OSError as error:
                position = self._resume(
                    descriptor, position, position + wanted, read_problem(error)
                )
                continue
            if got < wanted:
                self._damage(position + got, to, FILE_SHORTER)
                to = position + got
            chunk = RecordBuffer(buffer.data[:got])
            found = chosen().walk(chunk, 0, got)
            stopped_at = position + found.stopped_at
            cut = may_be_record(found.size, found.magic, to - stopped_at)
            cut = cut or (got - found.stopped_at < record.BLANK.size <= to - stopped_at)
            blank = found.magic == record.BLANK_MAGIC and found.size == to - stopped_at
            damaged = stopped_at < to and not cut and not blank
            search_from = damage_from = stopped_at
            if len(found.positions):
                batch, bad = self._decoder.decode(chunk, found.positions, position)
                if damaged and bad and max(bad).position == found.positions[-1]:
                    # The last record's wrong size led here, so search inside the record, too.
                    damage_from = position + int(found.positions[-1])
                    bad.remove(max(bad))
                    search_from = damage_from + 1
                for one in sorted(bad):
                    at = position + one.position
                    self._damage(at, at + one.size, one.reason)
                yield batch
            if damaged:
                reason = record_problem(found.size, found.magic, to - stopped_at)
                position = self._resume(descriptor, damage_from, search_from, reason)
                continue
            if blank:
                return
            if cut and not found.stopped_at:
                self._chunk_bytes = max(self._chunk_bytes, found.size)
            position = stopped_at

    def _resume(self, descriptor: int, damage_from: int, search_from: int, reason: str) -> int:
        """Record damage; return the offset of the next sound record, or the end.

        ConsumeQueues are preferred to the bytes, because a body may contain something like a
        record.
        """
        split = self._split
        file = split.file
        after = self._queues.record_at_or_after(file, search_from + 1, split.commit_log_to)
        if after is None:
            candidates = magics_from(descriptor, file, search_from + 1)
            after = next((at for at in candidates if sound_size(descriptor, file, at)), None)
        resumed = split.commit_log_to if after is None else after
        self._damage(damage_from, resumed, reason)
        return resumed

    def _damage(self, commit_log_from: int, commit_log_to: int, reason: str) -> None:
        self.damages.append(Damage(self._split.path, commit_log_from, commit_log_to, reason))
