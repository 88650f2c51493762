"""What a watcher wants to see of the messages that pass.

The filter runs in the broker, so that what is not wanted costs neither wire nor browser.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Stage = Literal["stored", "delivered", "acknowledged"]
STAGES: frozenset[str] = frozenset({"stored", "delivered", "acknowledged"})
Text = Annotated[str, msgspec.Meta(max_length=255)]


class TraceFilter(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """None and empty match everything; all that is set must match."""

    topic: Text | None = None
    group: Text | None = None
    tag: Text | None = None
    key: Text | None = None
    client_id: Text | None = None
    stages: Annotated[list[Stage], msgspec.Meta(max_length=16)] | None = None
    min_latency_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    sample: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    """One in so many of the matching events is sent."""
