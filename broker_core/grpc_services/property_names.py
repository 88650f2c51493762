"""Message properties that have a meaning in RocketMQ 5.

Source: common/message/MessageConst.java (5.3.3).
"""

from __future__ import annotations

from broker_core.message import names

SHARDING_KEY = "__SHARDINGKEY"
"""A FIFO message's group."""
TRACE_CONTEXT = "TRACE_CONTEXT"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
DELIVER_MS = "TIMER_DELIVER_MS"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
TIMER_NAMES = frozenset({"TIMER_DELAY_SEC", "TIMER_DELAY_MS", DELIVER_MS})
SHOWN = frozenset({names.PROPERTY_TRANSACTION_ID, names.PROPERTY_TRANSACTION_CHECK_TIMES})
"""The broker's own properties that clients may set and receive."""
RESERVED = (
    names.PROPERTY_NAMES
    | TIMER_NAMES
    | {
        BORN_HOST,
        BORN_TIMESTAMP,
        DLQ_ORIGIN_TOPIC,
        DLQ_ORIGIN_MESSAGE_ID,
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_OUT_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL",
        "TIMER_DEL_MS",
    }
) - SHOWN
"""Names that clients can't use for their own properties."""
