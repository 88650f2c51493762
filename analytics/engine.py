"""Engine: the Spark that does the work, whoever's Java process it runs in.

`session.Spark` has a Java process of its own, on this machine alone or as the driver of a cluster;
`connect.RemoteSpark` is a guest in a Spark Connect server. What a report or the lake asks of either
is here, and nothing else of Spark than frames is used beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from analytics import connect, session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    from analytics.zygote import Zygote

Item = TypeVar("Item")


class Engine(Protocol):
    """A Spark that is ready for work, with our data sources known to it."""

    @property
    def session(self) -> SparkSession:
        """What frames are read by."""
        ...

    def begin(self, title: str) -> None:
        """Say what this thread asks for from now on: `cancel` ends it, and Spark's page names it.

        Raises:
            PySparkException, Py4JError: Spark is gone.
        """
        ...

    def cancel(self) -> None:
        """End what runs; what has not begun yet is not reached. Any thread."""
        ...

    def width(self) -> int:
        """Return how many tasks run at a time, as far as Spark tells."""
        ...

    def each(self, work: Callable[[Item], str], items: Sequence[Item]) -> list[str]:
        """Return what `work` says of each of the items, one task of a worker for each.

        It says it in words: nothing that comes from elsewhere is made an object of here.

        Raises:
            PySparkException, Py4JError: Spark failed, or was cancelled.
        """
        ...

    def watched(self, *, tells_rows: bool) -> AbstractContextManager[Callable[[], tuple[int, int]]]:
        """Give what tells of the first stage to come: its tasks done, and the rows it has read.

        Rows are 0 without `tells_rows`, and where Spark does not say. It may be called from any
        thread until the block ends, and raises Py4JError where Spark is gone.
        """
        ...

    def why_gone(self) -> str:
        """Return a sentence if Spark has ended, after giving it a moment to; "" if it has not."""
        ...

    def close(self) -> None:
        """Give back all that Spark holds for us."""
        ...


def start_engine(
    scratch: Path,
    *,
    master: str,
    driver_host: str,
    zygote: Zygote | None = None,
) -> Engine:
    """Start the Spark of a master, or become a guest in a Spark Connect server; takes seconds.

    `scratch` is as for `session.start_spark`.

    Raises:
        ReportError: nobody answers there, or something that is needed is not here.
    """
    if session.is_connect(master):
        return connect.start_remote(scratch, master)
    return session.start_spark(scratch, master=master, driver_host=driver_host, zygote=zygote)
