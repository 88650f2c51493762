"""OpenCluster: a cluster whose connections stay open between calls, for synchronous code.

Spark keeps a Python worker for many tasks; each task reuses the connections of the previous one.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from analytics.errors import ReportError
from analytics.remote.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    from analytics.remote.access import Access

T = TypeVar("T")

CLUSTERS_OPEN_MAX = 4
# The event loop notices a closed connection within this many iterations.
TURNS_TO_NOTICE = 3


class OpenCluster:
    """Runs coroutines against a cluster, one at a time; belongs to one thread.

    Attributes:
        cluster: for code that keeps a reference between calls; use it only inside `run`.
    """

    def __init__(self, access: Access) -> None:
        self._runner = asyncio.Runner()
        try:
            self.cluster = self._runner.run(_made(access))
        except BaseException:
            self._runner.close()
            raise
        self._is_closed = False

    def run(self, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Call a coroutine function with the cluster and return its result."""
        return self._runner.run(self._run(work))

    def close(self) -> None:
        """Close all connections. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._runner.run(self.cluster.close())
            self._runner.close()

    async def _run(self, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        for _ in range(TURNS_TO_NOTICE):
            await asyncio.sleep(0)
        return await work(self.cluster)


class _ThreadClusters(threading.local):
    """The clusters of a thread; a forked process starts without its parent's clusters."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.pid = os.getpid()
        self.clusters: dict[Access, OpenCluster] = {}


_kept = _ThreadClusters()


@contextmanager
def open_cluster(access: Access) -> Iterator[OpenCluster]:
    """Yield this thread's connections to a cluster; after an error, the next caller gets new ones.

    Raises:
        ReportError: the account's secret or the certificates aren't readable.
    """
    if _kept.pid != os.getpid():
        _kept.begin()
    clusters = _kept.clusters
    one = clusters.pop(access, None) or OpenCluster(access)
    clusters[access] = one
    while len(clusters) > CLUSTERS_OPEN_MAX:
        clusters.pop(next(iter(clusters))).close()
    try:
        yield one
    except ReportError:
        # The secret may have been replaced, or the cluster moved.
        if clusters.get(access) is one:
            del clusters[access]
        one.close()
        raise


def close_clusters() -> None:
    """Close this thread's connections."""
    while _kept.clusters:
        _kept.clusters.popitem()[1].close()


async def _made(access: Access) -> Cluster:
    return Cluster(access)


atexit.register(close_clusters)
