"""Engine: the Spark that runs a report, in a Java process of this program or of a server.

`session.Spark` has its own Java process, on this machine alone or as the driver of a cluster.
`connect.RemoteSpark` is a client of a Spark Connect server. Both have the same methods; the
functions of `analytics.frames` read rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from analytics.connect import RemoteSpark, start_remote
from analytics.session import Spark, is_connect, start_spark

if TYPE_CHECKING:
    from pathlib import Path

Engine: TypeAlias = Spark | RemoteSpark


def start_engine(scratch: Path, *, master: str, driver_host: str) -> Engine:
    """Start Spark, or connect to a Spark Connect server; takes seconds.

    `scratch` is as for `session.start_spark`.

    Raises:
        ReportError: the server doesn't respond, or a dependency is missing.
    """
    if is_connect(master):
        return start_remote(scratch, master)
    return start_spark(scratch, master=master, driver_host=driver_host)
