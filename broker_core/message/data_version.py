"""The version of a configuration table: a counter and the time of the last change.

Source: common/DataVersion.java (4.9.7).
"""

from __future__ import annotations

import msgspec


class DataVersion(msgspec.Struct, rename="camel", kw_only=True, frozen=True, gc=False):
    """Two tables are equal if and only if both fields are."""

    counter: int = 0
    timestamp: int = 0
    """Milliseconds since the epoch."""

    def next(self, now_ms: int) -> DataVersion:
        return DataVersion(counter=self.counter + 1, timestamp=now_ms)
