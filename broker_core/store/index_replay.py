"""The comparison of the index with the log during recovery.

After a crash the index is continued, not rebuilt. While its entries match the log, nothing is
written; at the first difference the index is cut and written from there. Entries are compared as
arrays, because a log has millions of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from broker_core.formats.index_entry import SECONDS_MAX, key_hash
from broker_core.message.names import KEY_SEPARATOR
from broker_core.message.tags import index_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.index_file import IndexFile
    from broker_core.store.index_service import IndexService

    Ints = NDArray[np.int64]


class IndexReplay:
    """One start's pass over the index, in log order. Not reusable."""

    def __init__(self, index: IndexService, replay_from: int, *, clean_exit: bool) -> None:
        self._index = index
        self._is_comparing = False
        self._files: list[IndexFile] = []
        self._number = 1
        if clean_exit:
            return
        tail = [file for file in index.files if file.end_phy_offset >= replay_from]
        if not tail:
            return
        self._number = tail[0].first_number(replay_from)
        starts = [self._number] + [1] * (len(tail) - 1)
        if all(file.has_intact_chains(start) for file, start in zip(tail, starts, strict=True)):
            self._is_comparing = True
            self._files = tail
        else:
            index.cut_from(replay_from)

    def put(
        self,
        seed: int,
        uniq_key: str | None,
        keys: str | None,
        commit_log_offset: int,
        store_timestamp: int,
    ) -> None:
        """Compare the keys of one message."""
        words = [uniq_key] if uniq_key else []
        words += [key for key in keys.split(KEY_SEPARATOR) if key] if keys else []
        if not words:
            return
        hashes = np.array([key_hash(index_hash(seed, word)) for word in words], np.int64)
        places = np.full(len(words), commit_log_offset, np.int64)
        self.put_all(hashes, places, np.full(len(words), store_timestamp, np.int64))

    def put_all(self, hashes: Ints, commit_log_offsets: Ints, store_timestamps: Ints) -> None:
        """Compare the keys of consecutive messages; the keys of a message must be adjacent."""
        same = 0
        if self._is_comparing:
            same = self._count_equal(hashes, commit_log_offsets, store_timestamps)
            if same == len(hashes):
                return
            self._is_comparing = False
            self._index.cut_from(int(commit_log_offsets[same]))
            # Some entries of this message may be present; all of them are written again.
            same = int(np.searchsorted(commit_log_offsets, commit_log_offsets[same]))
        known = int(np.searchsorted(commit_log_offsets, self._index.end_phy_offset, side="right"))
        same = max(same, known)
        self._index.put_hashes(hashes[same:], commit_log_offsets[same:], store_timestamps[same:])

    def finish(self, commit_log_offset: int) -> None:
        """Remove the entries of messages after the end of the log."""
        if self._is_comparing:
            self._index.cut_from(commit_log_offset)

    def _count_equal(self, hashes: Ints, offsets: Ints, timestamps: Ints) -> int:
        done = 0
        while done < len(hashes):
            file = self._files[0]
            here = min(file.count - self._number, len(hashes) - done)
            if here == 0:
                if len(self._files) == 1:
                    return done
                del self._files[0]
                self._number = 1
                continue
            entries = file.entries(self._number, self._number + here)
            part = slice(done, done + here)
            same = (entries["hash"] == hashes[part]) & (entries["offset"] == offsets[part])
            seconds = np.clip((timestamps[part] - file.begin_timestamp) // 1000, 0, SECONDS_MAX)
            # The first entry of a file counts from the end of the previous file.
            same &= (entries["seconds"] == seconds) | (np.arange(here) + self._number == 1)
            if not same.all():
                return done + int(same.argmin())
            self._number += here
            done += here
        return done
