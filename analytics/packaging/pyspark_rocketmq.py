"""Where Spark finds the `rocketmq` source by itself, once the wheel is installed."""

from __future__ import annotations

from analytics.sources.rocketmq import RocketMqDataSource as DefaultSource

__all__ = ["DefaultSource"]
