"""Spark data sources for Apache RocketMQ: `commitlog` and `rocketmq`.

Spark finds both by itself where the package is installed; elsewhere they are registered:

    spark.dataSource.register(trebuchet_spark.sources.commitlog.CommitLogDataSource)
    spark.dataSource.register(trebuchet_spark.sources.rocketmq.RocketMqDataSource)
"""

from __future__ import annotations

from analytics.schemas import messages_with
from analytics.sources.observed import observed

__all__ = ["messages_with", "observed"]
