"""Lets Spark discover the `rocketmq` source once the wheel is installed."""

from __future__ import annotations

from analytics.sources.rocketmq import RocketMqDataSource as DefaultSource

__all__ = ["DefaultSource"]
