"""LimitsConfig: how much clients may make the broker hold.

The original has no such bounds. The defaults are far above what honest clients use, and all tables
filled to them take less than 100 MB; a request that would go beyond one is refused with a remark
that names the key.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.config.setting import BYTES, setting

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Bounds of what is kept for clients, all of them ours, beyond RocketMQ's keys."""

    client_body_bytes_max: int = setting(MIB, low=1024, high=16 * MIB, unit=BYTES, live=True)
    """The body of a heartbeat or of a request that locks queues."""
    client_group_nums_max: int = setting(500, low=1, live=True)
    """Groups of one connection: so many of consumers, and so many of producers."""
    client_subscription_nums_max: int = setting(1_000, low=1, live=True)
    """Subscriptions in one heartbeat."""
    client_expression_chars_max: int = setting(32_768, low=1_024, live=True)
    """Characters of all subscriptions' expressions in one heartbeat, or of a pull's own one."""
    member_nums_max: int = setting(20_000, low=1, live=True)
    """Members of all groups of consumers; as many of producers. A client in two groups is two."""
    subscription_nums_max: int = setting(20_000, low=1, live=True)
    """Subscriptions of all groups. A long expression counts once more each 16 characters."""
    consumer_filter_nums_max: int = setting(3_000, low=1, live=True)
    """Filters of groups that subscribe by SQL expressions, kept for a day after the group left.
    A long expression counts once more each 256 characters."""
    topic_nums_max: int = setting(30_000, low=1, live=True)
    """Topics: with so many, none is created."""
    consumer_group_nums_max: int = setting(12_000, low=1, live=True)
    """Consumer groups: with so many, none is created."""
    client_lock_nums_max: int = setting(5_000, low=1, live=True)
    """Queues in one request that locks them."""
    host_queue_lock_nums_max: int = setting(15_000, low=1, live=True)
    """Locked queues of the clients at one address."""
    queue_lock_nums_max: int = setting(30_000, low=1, live=True)
    """Locked queues of all clients."""
    consumer_offset_nums_max: int = setting(300_000, low=1, live=True)
    """Consumer offsets, one a queue; each pair of group and topic counts ten more."""
    unknown_offset_nums_max: int = setting(50_000, low=1, live=True)
    """The same, of groups that do not exist."""
    account_nonce_nums_max: int = setting(50_000, low=1, live=True)
    """Requests with a fresh signature that one account makes within two minutes."""
    parked_pull_nums_max: int = setting(50_000, low=1, live=True)
    """Pulls that wait for a message. With so many, one that finds nothing is answered at once."""
    watcher_nums_max: int = setting(128, low=1, live=True)
    """Connections that follow the live trace."""
    host_watcher_nums_max: int = setting(32, low=1, live=True)
    """The same, from one address. A console needs one."""


LIMITS = LimitsConfig()
"""The defaults."""
