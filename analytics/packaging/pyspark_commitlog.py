"""Lets Spark discover the `commitlog` source once the wheel is installed.

Spark imports each top-level module whose name begins with pyspark_ and registers its DefaultSource.
In the wheel, this module is at the top level.
"""

from __future__ import annotations

from analytics.sources.commitlog import CommitLogDataSource as DefaultSource

__all__ = ["DefaultSource"]
