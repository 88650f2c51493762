"""Reads messages from brokers when a Spark cluster can't see the log files.

Each of the cluster's workers first checks whether it sees the same files as this process. If a
worker doesn't, and the environment sets the name servers, reports that need only messages read from
the source `rocketmq`. Other reports fail with the reason.
"""

from __future__ import annotations

import functools
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from analytics.errors import ReportError, sentence_in
from analytics.frames import each
from analytics.session import SIGHT_SECONDS_MAX, is_local
from analytics.sources.rocketmq_options import parse_options
from analytics.store.fingerprint import fingerprint_before
from analytics.store.reader import StoreReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.engine import Engine
    from analytics.inputs import Input
    from analytics.reports.report import Report
    from analytics.request import Request
    from analytics.store.plan import ReadPlan

VARIABLE = "TREBUCHET_SPARK_BROKERS"
OPTIONS = (
    *("namesrvAddr", "accessKey", "secretKeyFile", "tls", "tlsCaFile", "tlsVerify"),
    *("timeoutMs", "consumerGroup"),
)
EVERY_TOPIC = ".*"
# Tasks per worker core, enough to reach almost every worker.
LOOKS_A_TASK = 2


def broker_options(text: str) -> dict[str, str]:
    """Parse a setting: the name servers, or `name=value` pairs separated by blanks.

    Raises:
        ReportError: an option is unknown, or its value isn't valid.
    """
    words = text.split()
    if not words:
        return {}
    given: dict[str, str] = {}
    for word in words:
        name, is_named, value = word.partition("=")
        given[name if is_named else "namesrvAddr"] = value if is_named else word
    for name in given:
        if name not in OPTIONS:
            raise ReportError(
                f"{VARIABLE} has the unknown option {name}. Use {', '.join(OPTIONS)}, each as "
                "name=value."
            )
    parse_options(given)
    return given


def broker_problem(report: Report) -> str:
    """Return why a report can't be made from brokers, or "" if it can."""
    if report.system_topics or report.client_traces:
        return "it reads internal messages, which brokers don't return to clients"
    if report.prepare is not None:
        return "it needs the offsets and queues in the store's configuration files"
    if "commit_log_offset" in report.reads:
        return "it compares offsets in one broker's log"
    if report.dead_letters:
        return "dead letters may not be readable over the network"
    return ""


def name_servers_to_read(spark: Engine, request: Request, plan: ReadPlan) -> str:
    """Return the name servers to read from, or "" if the workers see the log.

    Raises:
        ReportError: the workers don't see the log, and either the report can't be made from brokers
            or no name servers are set.
    """
    if is_local(request.master):
        return ""
    blind = _blind_workers(spark, request, plan)
    if not blind:
        return ""
    said = (
        f"{', '.join(blind)} of the Spark cluster at {request.master} doesn't see the log at "
        f"{request.store}"
    )
    reason = broker_problem(request.report)
    if reason:
        raise ReportError(
            f"{said}, and this report can't read the brokers instead: {reason}. Share the store "
            "with every worker under the same path, or run reports on this machine."
        )
    brokers = broker_options(request.brokers)
    if not brokers:
        raise ReportError(
            f"{said}. Share the store with every worker under the same path, or set {VARIABLE} "
            "to the name servers' addresses to read the brokers instead."
        )
    return brokers["namesrvAddr"]


def is_blind_to(spark: Engine, request: Request, given: Input) -> bool:
    """Return whether a worker of a cluster can't see the lake that the report would read."""
    if is_local(request.master) or "://" in str(request.lake):
        return False
    return bool(_machines(spark, request, functools.partial(_look_for, Path(given.lake_file))))


def options_for(request: Request) -> dict[str, str]:
    """Return the options of the source `rocketmq` for a request."""
    topic = request.topic_read
    options: dict[str, object] = {
        **broker_options(request.brokers),
        **({"subscribePattern": EVERY_TOPIC} if topic is None else {"subscribe": topic}),
        "startingTimestamp": request.from_ms,
        "endingTimestamp": request.to_ms,
        "failOnDataLoss": "false",
    }
    return {name: str(value) for name, value in options.items() if value is not None}


def _blind_workers(spark: Engine, request: Request, plan: ReadPlan) -> list[str]:
    """Return the host names of workers that don't see the same log as this process."""
    fingerprint = fingerprint_seen(request.store, request.commit_log, plan.log_to)
    look = functools.partial(
        _look, request.store.absolute(), request.commit_log, plan.log_to, fingerprint
    )
    return _machines(spark, request, look)


def _machines(spark: Engine, request: Request, look: Callable[[int], str]) -> list[str]:
    """Call `look` on the workers' machines; return the distinct non-empty results."""
    count = max(1, LOOKS_A_TASK * spark.width())
    spark.begin("looking for the log")
    # Without a timer, this would wait forever for stopped or busy workers.
    is_late = threading.Event()
    timer = threading.Timer(SIGHT_SECONDS_MAX, _give_up, (spark, is_late))
    timer.daemon = True
    timer.start()
    try:
        found = each(spark.session, look, range(count))
    except (PySparkException, Py4JError) as error:
        if is_late.is_set():
            raise ReportError(
                f"The workers of the Spark cluster at {request.master} didn't report within "
                f"{SIGHT_SECONDS_MAX:.0f} s whether they see the log at {request.store}. They "
                "are busy or down."
            ) from error
        if isinstance(error, Py4JError):
            raise
        said = sentence_in(str(error)) or "see the log for the reason"
        raise ReportError(
            f"The Spark cluster at {request.master} couldn't run a task: {said}."
        ) from error
    finally:
        timer.cancel()
    return sorted({host for host in found if host})


def _give_up(spark: Engine, is_late: threading.Event) -> None:
    is_late.set()
    spark.cancel()


def _look(
    store: Path, commit_log: Path | None, offset: int, fingerprint: int | None, _: int
) -> str:
    """Return this host's name if it doesn't see the log, else "". Runs in a worker."""
    if fingerprint_seen(store, commit_log, offset) == fingerprint:
        return ""
    return socket.gethostname()


def _look_for(path: Path, _: int) -> str:
    """Return this host's name if it doesn't see a file, else "". Runs in a worker."""
    return "" if path.exists() else socket.gethostname()


def fingerprint_seen(store: Path, commit_log: Path | None, offset: int) -> int | None:
    """Return the fingerprint of this machine's log before an offset, or None if it has no log."""
    try:
        reader = StoreReader(store, commit_log_path=commit_log)
        return fingerprint_before(reader.files(), offset)
    except (ReportError, OSError):
        return None
