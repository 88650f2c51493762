"""Which messages a watcher wants to see.

The filter runs in the broker, so that unwanted events cost neither wire nor browser.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Stage = Literal["stored", "delivered", "acknowledged", "given_back", "dead"]
STAGES: frozenset[str] = frozenset({"stored", "delivered", "acknowledged", "given_back", "dead"})
Text = Annotated[str, msgspec.Meta(max_length=255)]


class TracedMessage(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """One message: its place, and its unique key, by which its copies in other topics are found."""

    topic: Text
    queue_id: Annotated[int, msgspec.Meta(ge=0)]
    queue_offset: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,19}$")]
    uniq_key: Text | None = None


class TraceFilter(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """None and empty match everything; everything else must match."""

    topic: Text | None = None
    group: Text | None = None
    """A consumer group or a producer group."""
    tag: Text | None = None
    key: Text | None = None
    """One of the keys, the unique key or the offset id."""
    client_id: Text | None = None
    stages: Annotated[list[Stage], msgspec.Meta(max_length=16)] | None = None
    min_latency_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    sample: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    """Send one of this many matching events."""
    message: TracedMessage | None = None
