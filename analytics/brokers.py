"""Brokers instead of files: what a report reads where a cluster of Spark does not see the log.

A cluster's workers are asked first whether they see what this process sees. Where one does not, and
the environment names the brokers' name servers, those reports are made from the source `rocketmq`
that need nothing but messages; the others say why they cannot.
"""

from __future__ import annotations

import functools
import socket
import threading
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from analytics.errors import ReportError, sentence_in
from analytics.session import SIGHT_SECONDS_MAX, is_local
from analytics.sources.rocketmq_options import parse_options
from analytics.store.fingerprint import fingerprint_before
from analytics.store.reader import StoreReader

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.engine import Engine
    from analytics.reports.report import Report
    from analytics.request import Request
    from analytics.store.plan import ReadPlan

VARIABLE = "TREBUCHET_SPARK_BROKERS"
OPTIONS = (
    *("namesrvAddr", "accessKey", "secretKeyFile", "tls", "tlsCaFile", "tlsVerify"),
    *("timeoutMs", "consumerGroup"),
)
EVERY_TOPIC = ".*"
# So many for each worker's processor that hardly one is left out.
LOOKS_A_TASK = 2


def broker_options(text: str) -> dict[str, str]:
    """Return the options that a setting names: the name servers, or `name=value` with blanks.

    Raises:
        ReportError: it names others, or none that can be used.
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
                f"{VARIABLE} names {name}; it may name {', '.join(OPTIONS)}, each as name=value."
            )
    parse_options(given)
    return given


def why_not(report: Report) -> str:
    """Return why a report cannot be made from brokers, "" where it can."""
    if report.system_topics or report.client_traces:
        return "it reads messages that a broker keeps for itself and gives nobody"
    if report.prepare is not None:
        return "it needs the offsets and queues that the store's own files hold"
    if "commit_log_offset" in report.reads:
        return "it compares places in one broker's log"
    if report.dead_letters:
        return "dead letters may be such that nobody has the right to read them over the network"
    return ""


def brokers_instead(spark: Engine, request: Request, plan: ReadPlan) -> str:
    """Return the name servers whose brokers are to be read, "" where the log is.

    Raises:
        ReportError: it does not, and the report cannot be made from brokers, or none are named.
    """
    if is_local(request.master):
        return ""
    blind = _blind_workers(spark, request, plan)
    if not blind:
        return ""
    said = (
        f"{', '.join(blind)} of the Spark cluster at {request.master} does not see the log at "
        f"{request.store}"
    )
    reason = why_not(request.report)
    if reason:
        raise ReportError(
            f"{said}, and this report is not made from the brokers instead: {reason}. Share the "
            "store with each worker under the same path, or run reports on this machine."
        )
    brokers = broker_options(request.brokers)
    if not brokers:
        raise ReportError(
            f"{said}: share the store with each worker under the same path, or set {VARIABLE} to "
            "the name servers' addresses, so that the brokers are read instead."
        )
    return brokers["namesrvAddr"]


def options_for(request: Request) -> dict[str, str]:
    """Return the options by which the source reads what a report asks for."""
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
    """Return the names of the machines that see another log than this process, or none."""
    fingerprint = fingerprint_seen(request.store, request.commit_log, plan.log_to)
    look = functools.partial(
        _look, request.store.absolute(), request.commit_log, plan.log_to, fingerprint
    )
    count = max(1, LOOKS_A_TASK * spark.width())
    spark.begin("looking for the log")
    # Workers that went meanwhile, or are busy for others, would be waited for without an end.
    is_late = threading.Event()
    timer = threading.Timer(SIGHT_SECONDS_MAX, _give_up, (spark, is_late))
    timer.daemon = True
    timer.start()
    try:
        found = spark.each(look, range(count))
    except (PySparkException, Py4JError) as error:
        if is_late.is_set():
            raise ReportError(
                f"The workers of the Spark cluster at {request.master} did not say within "
                f"{SIGHT_SECONDS_MAX:.0f} s whether they see the log at {request.store}: they are "
                "busy with other work, or gone."
            ) from error
        if isinstance(error, Py4JError):
            raise
        said = sentence_in(str(error)) or "the log says why"
        raise ReportError(f"The Spark cluster at {request.master} runs no task: {said}.") from error
    finally:
        timer.cancel()
    return sorted({host for host in found if host})


def _give_up(spark: Engine, is_late: threading.Event) -> None:
    is_late.set()
    spark.cancel()


def _look(
    store: Path, commit_log: Path | None, offset: int, fingerprint: int | None, _: int
) -> str:
    """Return this machine's name when it does not see the log, else "". Runs in a worker."""
    if fingerprint_seen(store, commit_log, offset) == fingerprint:
        return ""
    return socket.gethostname()


def fingerprint_seen(store: Path, commit_log: Path | None, offset: int) -> int | None:
    """Return the fingerprint of a log before an offset as this machine sees it, None of nothing."""
    try:
        reader = StoreReader(store, commit_log_path=commit_log)
        return fingerprint_before(reader.files(), offset)
    except (ReportError, OSError):
        return None
