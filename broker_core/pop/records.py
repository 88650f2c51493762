"""Records of the revive log: leases, and their ends.

`ck`, `ack` and `bAck` have 5.3.3's format, so that a 5.3.3 broker can start on the store. `order`
and `orderAck` are Trebuchet's own: RocketMQ writes the batches of ordered groups to a file every
five seconds.

Source: store/pop/PopCheckPoint.java, AckMsg.java, BatchAckMsg.java (5.3.3).
"""

from __future__ import annotations

import msgspec

TAG_CHECKPOINT = "ck"
TAG_ACK = "ack"
TAG_BATCH_ACK = "bAck"
TAG_ORDER = "order"
TAG_ORDER_ACK = "orderAck"
TAG_GROUP_END = "groupEnd"


class CheckpointRecord(msgspec.Struct, gc=False, frozen=True):
    """The leases of one pop in one queue. The keys have the order in which fastjson writes them."""

    bits: int = msgspec.field(name="bm")
    """Bit i is set when message i is acknowledged; a signed 32-bit number as in Java."""
    broker_name: str = msgspec.field(name="bn")
    group: str = msgspec.field(name="c")
    deltas: list[int] = msgspec.field(name="d")
    """Offsets relative to start_offset."""
    invisible_ms: int = msgspec.field(name="it")
    count: int = msgspec.field(name="n")
    pop_time_ms: int = msgspec.field(name="pt")
    queue_id: int = msgspec.field(name="q")
    revive_time_ms: int = msgspec.field(name="reviveTime")
    revive_offset: int = msgspec.field(name="ro")
    start_offset: int = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")
    suspend: bool | msgspec.UnsetType = msgspec.UNSET
    """Trebuchet's own key, only written when true; 5.3.3 skips it and counts the attempt."""


class AckRecord(msgspec.Struct, gc=False, frozen=True):
    """The end of one or more leases."""

    ack_offset: int = msgspec.field(name="ao")
    """-1 in a record with `offsets`."""
    broker_name: str = msgspec.field(name="bn")
    group: str = msgspec.field(name="c")
    pop_time_ms: int = msgspec.field(name="pt")
    queue_id: int = msgspec.field(name="q")
    start_offset: int = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")
    offsets: list[int] | msgspec.UnsetType = msgspec.field(name="aol", default=msgspec.UNSET)


class OrderRecord(msgspec.Struct, gc=False, frozen=True):
    """The lease of an ordered group on a queue; the newest record of a queue counts."""

    attempt_id: str | None
    acked: list[int]
    committed: int
    end: int
    group: str
    invisible_ms: int
    offsets: list[int]
    """Open messages, ascending."""
    pop_time_ms: int
    queue_id: int
    times: list[int]
    """Number of earlier deliveries of each open message."""
    topic: str
    visible_ms: list[int]
    """End of each open message's lease in wall time; 0 without a lease."""
    suspended: list[int] | msgspec.UnsetType = msgspec.UNSET
    """Offsets whose current delivery doesn't count as an attempt."""


class OrderAckRecord(msgspec.Struct, gc=False, frozen=True):
    """An acknowledged message of an ordered group."""

    group: str
    offset: int
    pop_time_ms: int
    queue_id: int
    topic: str


class GroupEndRecord(msgspec.Struct, gc=False, frozen=True):
    """The deletion of a group, which ends its leases."""

    group: str
    keeps_offsets: bool = False
    """Whether its offsets are kept, and return to its first leased messages."""


encode = msgspec.json.Encoder().encode
decode_checkpoint = msgspec.json.Decoder(CheckpointRecord).decode
decode_ack = msgspec.json.Decoder(AckRecord).decode
decode_order = msgspec.json.Decoder(OrderRecord).decode
decode_order_ack = msgspec.json.Decoder(OrderAckRecord).decode
decode_group_end = msgspec.json.Decoder(GroupEndRecord).decode
