"""LimitsConfig: how much data clients may make the broker hold.

RocketMQ has no such limits. The defaults are far above normal use, and all tables at their
limits need less than 100 MB, plus 100 MB for timers; a request that would exceed a limit is refused
with a remark that names the key.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.config.setting import BYTES, setting

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Limits on data kept for clients; RocketMQ doesn't have these keys."""

    client_body_bytes_max: int = setting(MIB, low=1024, high=16 * MIB, unit=BYTES, live=True)
    """The body of a heartbeat or of a request that locks queues."""
    client_group_nums_max: int = setting(500, low=1, live=True)
    """Groups of one connection; consumer and producer groups count separately."""
    client_subscription_nums_max: int = setting(1_000, low=1, live=True)
    """Subscriptions in one heartbeat."""
    client_expression_chars_max: int = setting(32_768, low=1_024, live=True)
    """Total characters of the subscriptions' expressions in one heartbeat, or of a pull's
    expression.
    """
    member_nums_max: int = setting(20_000, low=1, live=True)
    """Members of all consumer groups, and separately of all producer groups. A client in two groups
    counts twice.
    """
    subscription_nums_max: int = setting(20_000, low=1, live=True)
    """Subscriptions of all groups. A long expression counts once more per 16 characters."""
    consumer_filter_nums_max: int = setting(3_000, low=1, live=True)
    """Filters of groups that subscribe by SQL expressions, kept for a day after the group has left.
    A long expression counts once more per 256 characters.
    """
    topic_nums_max: int = setting(30_000, low=1, live=True)
    """Topics: at the limit, creation is refused."""
    consumer_group_nums_max: int = setting(12_000, low=1, live=True)
    """Consumer groups: at the limit, creation is refused."""
    client_lock_nums_max: int = setting(5_000, low=1, live=True)
    """Queues in one lock request."""
    host_queue_lock_nums_max: int = setting(15_000, low=1, live=True)
    """Queues locked by the clients at one address."""
    queue_lock_nums_max: int = setting(30_000, low=1, live=True)
    """Queues locked by all clients."""
    consumer_offset_nums_max: int = setting(300_000, low=1, live=True)
    """Consumer offsets, one per queue; each pair of group and topic counts as ten more."""
    unknown_offset_nums_max: int = setting(50_000, low=1, live=True)
    """Consumer offsets of groups that don't exist."""
    account_nonce_nums_max: int = setting(50_000, low=1, live=True)
    """Requests with a fresh signature from one account within two minutes."""
    pending_timer_nums_max: int = setting(1_500_000, low=1, live=True)
    """Pending timer messages; 1,000 use 60 kB of memory. A recalled message counts until its due
    time.
    """
    parked_pull_nums_max: int = setting(50_000, low=1, live=True)
    """Pulls waiting for a message. At the limit, a pull without a message is answered immediately.
    """
    parked_pop_nums_max: int = setting(20_000, low=1, live=True)
    """Pops waiting for a message. At the limit, a pop without a message is answered immediately."""
    pop_lease_nums_max: int = setting(200_000, low=64, live=True)
    """Messages leased by POP consumers. A group may lease half of them."""
    pop_lease_bytes_max: int = setting(48 * MIB, low=MIB, high=4096 * MIB, unit=BYTES, live=True)
    """Memory of these leases. A group may use half of it."""
    watcher_nums_max: int = setting(128, low=1, live=True)
    """Connections that follow the live trace."""
    host_watcher_nums_max: int = setting(32, low=1, live=True)
    """Connections from one address that follow the live trace. A console needs one."""


LIMITS = LimitsConfig()
"""The defaults."""
