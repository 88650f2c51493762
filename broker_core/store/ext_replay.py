"""The comparison of the ConsumeQueue extensions with the log during recovery.

An extension is kept while its units are consecutive and match the log; their bitmaps are trusted,
since they aren't stored elsewhere. At the first missing or different unit the queue's extension is
cut and rewritten, so that addresses always ascend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from broker_core.formats.cq_ext_unit import ADDRESS_BASE, ADDRESS_MAX
from broker_core.formats.cq_unit import UNITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.consume_queue import ConsumeQueue
    from broker_core.store.consume_queue_ext import ConsumeQueueExt

    Ints = NDArray[np.int64]


class ExtReplay:
    """One start's pass over the extensions, in log order. Not reusable.

    In a queue without extension files every unit must have the plain tags code.
    """

    def __init__(self) -> None:
        self._ends: dict[ConsumeQueue, int] = {}

    def unit_code(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        place: tuple[int, int],
        code: int,
        store_timestamp: int,
        properties: str,
    ) -> int:
        """Return the code for the unit of (commit_log_offset, size); write its extension."""
        ext = queue.ext
        if ext is None:
            return code
        unit = queue.unit(queue_offset)
        if unit is not None and unit[:2] == place and unit[2] > ADDRESS_MAX and unit[2] == code:
            return code
        end = self._end(queue, ext, queue_offset)
        if unit is not None and unit[:2] == place:
            known = ext.unit(unit[2])
            if (
                known is not None
                and unit[2] - ADDRESS_BASE >= end
                and (known.tags_code, known.store_timestamp) == (code, store_timestamp)
            ):
                self._ends[queue] = unit[2] - ADDRESS_BASE + known.size
                return unit[2]
        return self.put(queue, queue_offset, code, store_timestamp, properties)

    def put(
        self, queue: ConsumeQueue, queue_offset: int, code: int, store_timestamp: int, text: str
    ) -> int:
        """Append a unit's extension; return the code for the unit."""
        ext = queue.ext
        if ext is None:
            return code
        end = self._end(queue, ext, queue_offset)
        if ext.end != end:
            ext.cut(end, thorough=True)
        code = queue.put_ext(code, store_timestamp, text)
        self._ends[queue] = ext.end
        return code

    def extensions_match(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        stored: Ints,
        codes: Ints,
        store_timestamps: Ints,
    ) -> NDArray[np.bool_]:
        """Return which codes, stored in the units from queue_offset on, are right."""
        is_right: NDArray[np.bool_] = stored == codes
        is_address = stored <= ADDRESS_MAX
        if queue.ext is None or not is_address.any():
            return is_right
        chosen = np.flatnonzero(is_address)
        addresses = stored[chosen]
        sizes = queue.ext.sizes(addresses, codes[chosen], store_timestamps[chosen])
        offsets = addresses ^ np.int64(ADDRESS_BASE)
        ends = np.empty(len(chosen), np.int64)
        ends[0] = self._end(queue, queue.ext, queue_offset)
        ends[1:] = (offsets + sizes)[:-1]
        is_right[chosen] = (sizes > 0) & (offsets >= ends)
        return is_right

    def pass_over(self, queue: ConsumeQueue, queue_from: int, queue_to: int) -> None:
        """Accept the extensions of the units in [queue_from, queue_to)."""
        if queue.ext is None:
            return
        while queue_from < queue_to:
            view = queue.stored_units(queue_from, queue_to - queue_from)
            codes = np.frombuffer(view, UNITS)["tags_code"]
            if not len(codes):
                return
            addresses = codes[codes <= ADDRESS_MAX]
            if len(addresses):
                self._ends[queue] = queue.ext.end_behind(int(addresses[-1]))
            queue_from += len(codes)

    def keep(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Keep the unit of a lost message; return whether its code had to be changed.

        The code must not point at a current or future extension of another message.
        """
        unit = queue.unit(queue_offset)
        if unit is None or unit[2] > ADDRESS_MAX:
            return False
        known = queue.ext_unit(unit[2])
        if queue.ext is not None and known is not None:
            end = self._end(queue, queue.ext, queue_offset)
            if unit[2] - ADDRESS_BASE >= end:
                self._ends[queue] = unit[2] - ADDRESS_BASE + known.size
                return False
        return queue.put_at(queue_offset, unit[0], unit[1], 0)

    def finish(self, queue: ConsumeQueue, *, is_cut: bool) -> None:
        """Cut everything after the extension of the queue's last unit."""
        if queue.ext is not None and (is_cut or queue in self._ends):
            end = self._end(queue, queue.ext, queue.next_offset)
            queue.ext.cut(end, thorough=True)

    def _end(self, queue: ConsumeQueue, ext: ConsumeQueueExt, queue_offset: int) -> int:
        """Return where the extension of a unit may begin, after the extensions of earlier units."""
        end = self._ends.get(queue)
        if end is not None:
            return end
        address = queue.last_ext_address(queue_offset)
        return 0 if address is None else ext.end_behind(address)
