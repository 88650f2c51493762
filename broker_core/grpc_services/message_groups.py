"""Choose the queue of a FIFO message group.

The queue is the same as in RocketMQ, so that a topic that moves keeps each group's order.

Source: proxy/grpc/v2/producer/SendMessageActivity.java SendMessageQueueSelector (5.3.3),
com.google.common.hash.Hashing.consistentHash, java.lang.String.hashCode.
"""

from __future__ import annotations

from broker_core.message.tags import java_hash

_BITS = (1 << 64) - 1
_MULTIPLIER = 2862933555777941757
_HALF_RANGE = float(1 << 31)


def queue_of_group(group: str, queues: int) -> int:
    """Return a group's queue, counted from 0, given a number of queues of at least 1."""
    state = java_hash(group) & _BITS
    candidate = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _BITS
        following = int((candidate + 1) / (((state >> 33) + 1) / _HALF_RANGE))
        if following >= queues:
            return candidate
        candidate = following
