"""The version of a configuration table: a counter with the time of its last step.

Source: common/DataVersion.java (4.9.7).
"""

from __future__ import annotations

import msgspec


class DataVersion(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """Two tables are the same exactly when both fields are."""

    counter: int = 0
    timestamp: int = 0
    """Milliseconds since epoch."""

    def next(self, now_ms: int) -> DataVersion:
        return DataVersion(counter=self.counter + 1, timestamp=now_ms)
