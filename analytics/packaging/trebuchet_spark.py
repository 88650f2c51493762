"""Spark data sources for Apache RocketMQ: `commitlog` and `rocketmq`.

Spark discovers both if the package is installed. Otherwise, register them:

    spark.dataSource.register(trebuchet_spark.sources.commitlog.CommitLogDataSource)
    spark.dataSource.register(trebuchet_spark.sources.rocketmq.RocketMqDataSource)
"""

from __future__ import annotations

from analytics.schemas import messages_with
from analytics.sources.observed import observed

__all__ = ["messages_with", "observed"]
