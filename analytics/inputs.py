"""Selects where a report's rows come from: the log, the lake followed by the log, or samples.

The lake is read up to its watermark, and the log after it. A gold table replaces messages if it
counts everything that the report counts. If the lake can't give the same numbers as the log, the
report reads the log, and the result says why.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError
from pyspark.sql.pandas.types import from_arrow_schema

from analytics.errors import ReportError
from analytics.frames import LakeReading, LogReading
from analytics.lake.erasures import erased_count
from analytics.lake.gaps import has_gap_since
from analytics.lake.gold import counted_bronze
from analytics.lake.gold_tables import GOLD
from analytics.lake.place import LakePlace
from analytics.lake.rewriting import timed_files_of
from analytics.lake.status import broker_of
from analytics.lake.tables import MESSAGES, SAMPLES
from analytics.lake.watermark import Watermark
from analytics.reports.report import gettext_noop, step_for
from analytics.request import MS_A_MINUTE, moment_of, span_seconds
from analytics.schemas import DAMAGE_COLUMN, MESSAGES_COLUMN
from analytics.store.decode import COLUMN_TYPES, DAMAGE_TYPE, RowFilter
from analytics.store.fingerprint import NO_FINGERPRINT, fingerprint_before
from analytics.store.grouping import Grouping
from analytics.store.plan import ReadPlan
from analytics.store.reader import StoreReader
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from analytics.frames import Reading
    from analytics.lake.rewriting import TimedFile
    from analytics.lake.tables import LakeTable
    from analytics.reports.report import Value
    from analytics.request import Request

logger = logging.getLogger(__name__)

LOG = "log"
BODY = "body"
STORED = "store_timestamp"
REASON_CHARS_MAX = 200
# Size of the lake files that one task reads.
SHARE_BYTES = 64 * 1024 * 1024
# An erasure clears these columns, so reports that count by them leave erased messages out.
NAMING = frozenset({"keys", "uniq_key", "properties"})
# The gold columns that replace columns of messages.
OF_GOLD = ((STORED, "minute"), ("store_size", "bytes"), ("body_size", "body_bytes"))
NOTHING = ReadPlan([], 0, 0, 0, None)
NO_LAKE = (
    "This report needs samples of the console's collector, which the lake stores, but the lake is "
    "turned off. Remove TREBUCHET_LAKE=false and start deploy/up again."
)
NO_SAMPLES = (
    "The lake {uri} has no samples yet. The console's collector writes each hour five minutes "
    "after the hour ends, and the pipeline then ingests it. Run `manage.py lake status` to check "
    "that both are running."
)
NO_SAMPLES_IN_RANGE = (
    "The lake has samples from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, but none in "
    "the requested time range. An hour's samples are available five minutes after the hour ends. "
    "Choose a longer time range."
)


class RefusedError(Exception):
    """The lake isn't readable; the text is a sentence with placeholders for its figures."""

    def __init__(self, text: str, **figures: tuple[Value, str]) -> None:
        super().__init__(text)
        self.finding: dict[str, Any] = {
            "text": text,
            "figures": {
                name: {"value": str(value), "unit": unit} for name, (value, unit) in figures.items()
            },
        }


@dataclass(frozen=True, slots=True)
class Input:
    """The rows that one report reads, for one range of time.

    Attributes:
        reads: the lake table, or LOG.
        readings: one for each task.
        columns: the columns of the frame, including `damage`.
        step_seconds: the length of the intervals that the report counts by.
        plan: the parts of the log to read.
        is_grouped: whether a row represents as many messages as its column `messages` says.
        traces: readings of client traces, if the report uses them.
        stored_from_ms: when the oldest existing message was stored, None if there are no messages.
        has_expired: whether messages stored before that may have expired.
        because: why an existing lake isn't read.
        erased: how many messages in the lake have lost their keys on request.
        lake_file: a file that each worker must see.
        about: additional fields of result.json.
    """

    reads: str
    readings: Sequence[Reading]
    columns: pa.Schema
    step_seconds: int
    plan: ReadPlan = NOTHING
    is_grouped: bool = False
    traces: Sequence[Reading] = ()
    stored_from_ms: int | None = None
    has_expired: bool = False
    because: dict[str, Any] | None = None
    erased: int = 0
    lake_file: str = ""
    about: tuple[tuple[str, str], ...] = ()

    @property
    def schema(self) -> StructType:
        """The columns as Spark types."""
        return from_arrow_schema(self.columns)

    def reaches(self, from_ms: int | None) -> bool:
        """Return whether the input still has every message stored since a time."""
        stored = self.stored_from_ms
        return not self.has_expired or (
            stored is not None and from_ms is not None and stored <= from_ms
        )


def input_of(request: Request) -> Input:
    """Return the input for a request: the lake if it gives exact numbers, otherwise the log.

    Raises:
        ReportError: the store doesn't exist, or there are no samples of the range.
    """
    if request.report.samples:
        return _samples(request)
    if request.lake is None:
        return log_input(request)
    try:
        return _Lake(request).input()
    except RefusedError as refused:
        because = refused.finding
    except (ReportError, DeltaError, pa.ArrowException, OSError) as error:
        logger.warning("lake unreadable, reading the log lake=%s", request.lake, exc_info=True)
        because = unreadable(error)
    return log_input(request, because)


def unreadable(error: Exception) -> dict[str, Any]:
    """Return the finding that says why a lake isn't readable."""
    reason = next(iter(str(error).strip().splitlines()), "").rstrip(".")
    text = gettext_noop("The lake can't be read: %(reason)s.")
    return RefusedError(text, reason=(reason[:REASON_CHARS_MAX], "")).finding


def log_input(request: Request, because: dict[str, Any] | None = None) -> Input:
    """Return the log as input; `because` says why the lake isn't read.

    Raises:
        ReportError: the store doesn't exist.
    """
    report, topic = request.report, request.topic_read
    reader = _reader(request)
    topics = None if topic is None else frozenset({topic})
    plan = reader.plan(from_ms=request.from_ms, to_ms=request.to_ms, topics=topics)
    step = step_for(report, span_seconds(request, plan.stored_from_ms))
    traces: Sequence[Reading] = ()
    if report.client_traces:
        of_traces = frozenset({names.RMQ_SYS_TRACE_TOPIC})
        traces = _log_readings(
            request,
            reader.plan(
                from_ms=request.from_ms,
                to_ms=request.to_ms,
                from_offset=plan.log_from,
                to_offset=plan.log_to,
                topics=of_traces,
            ),
            columns_of(report.reads),
            RowFilter(of_traces, None, True, request.from_ms, request.to_ms),
            decompress=True,
        )
    reads = [name for name in report.reads if not (report.client_traces and name == BODY)]
    grouping = Grouping(report.grouped_by, step * 1_000_000) if report.grouped_by else None
    columns = columns_of(reads, grouping)
    wanted = RowFilter(topics, None, report.system_topics, request.from_ms, request.to_ms)
    return Input(
        LOG,
        _log_readings(request, plan, columns, wanted, grouping),
        columns,
        step,
        plan,
        is_grouped=grouping is not None,
        traces=traces,
        stored_from_ms=plan.stored_from_ms,
        has_expired=plan.log_from > 0,
        because=because,
    )


def columns_of(reads: Sequence[str], grouping: Grouping | None = None) -> pa.Schema:
    """Return the columns of a frame of messages, `damage` included."""
    if grouping is None:
        fields = [(name, COLUMN_TYPES[name]) for name in reads]
    else:
        types = grouping.types()
        fields = [(name, types[name]) for name in (*reads, MESSAGES_COLUMN)]
    return pa.schema([*fields, (DAMAGE_COLUMN, DAMAGE_TYPE)])


def _reader(request: Request) -> StoreReader:
    return StoreReader(
        request.store, commit_log_path=request.commit_log, split_bytes=request.split_bytes
    )


def _log_readings(
    request: Request,
    plan: ReadPlan,
    columns: pa.Schema,
    rows: RowFilter,
    grouping: Grouping | None = None,
    *,
    decompress: bool = False,
) -> list[Reading]:
    store = request.store.absolute()
    return [
        LogReading(store, request.commit_log, share, columns, rows, grouping, decompress)
        for share in plan.shares(request.split_bytes)
    ]


class _Lake:
    """Reads the lake up to its watermark, and the log after it."""

    def __init__(self, request: Request) -> None:
        report = request.report
        only_log = report.prepare is not None or report.system_topics or report.client_traces
        if only_log or not set(report.reads) <= set(MESSAGES.schema.names) - {BODY}:
            raise RefusedError(gettext_noop("The lake doesn't contain the data this report needs."))
        if request.from_ms is None:
            raise RefusedError(
                gettext_noop(
                    "The report covers everything in the log, and the lake may contain more."
                )
            )
        assert request.lake is not None
        self._request = request
        self._place = LakePlace.of(request.lake, request.lake_state, os.environ)
        self._broker = broker_of(self._place, os.environ)
        self._log = _reader(request)

    def input(self) -> Input:
        """Return the input.

        Raises:
            RefusedError: the lake can't give exactly the same numbers as the log.
        """
        request, report = self._request, self._request.report
        if not MESSAGES.exists(self._place):
            raise RefusedError(gettext_noop("The lake has no messages yet."))
        table, opened, bronze = MESSAGES, MESSAGES.existing(self._place), None
        named: tuple[tuple[str, str], ...] = ()
        gold = next((each for each in GOLD if each.table.name == report.gold), None)
        is_whole = not any((each or 0) % MS_A_MINUTE for each in (request.from_ms, request.to_ms))
        if gold is not None and is_whole and gold.table.exists(self._place):
            bronze = counted_bronze(self._place)
        if gold is not None and bronze is not None:
            table, opened, named = gold.table, gold.table.existing(self._place), OF_GOLD
        watermark = Watermark.of(bronze or opened, self._broker)
        if watermark is None:
            raise RefusedError(
                gettext_noop("The lake has no messages from %(broker)s yet."),
                broker=(self._broker, ""),
            )
        self._require_same_log(watermark)
        time = dict(named).get(STORED, STORED)
        files = [file for file in timed_files_of(opened, time) if file.may_be_of(self._broker)]
        stored_from = min((file.first for file in files if file.first), default=None)
        stored_from_ms = None if stored_from is None else int(stored_from.timestamp() * 1000)
        step = step_for(report, span_seconds(request, stored_from_ms))
        grouping = Grouping(report.grouped_by, step * 1_000_000) if report.grouped_by else None
        columns = columns_of(report.reads, grouping)
        of_lake = self._lake_readings(table, files, columns, named, time)
        plan = self._log.plan(
            from_ms=request.from_ms, to_ms=request.to_ms, from_offset=watermark.offset
        )
        topics = None if request.topic_read is None else frozenset({request.topic_read})
        rows = RowFilter(topics, None, False, request.from_ms, request.to_ms)
        of_log = _log_readings(request, plan, columns, rows, grouping)
        return Input(
            table.name,
            [*of_lake, *of_log],
            columns,
            step,
            plan,
            is_grouped=grouping is not None,
            stored_from_ms=stored_from_ms,
            has_expired=self._log.extent()[0] > 0,
            erased=erased_count(self._place, self._broker) if NAMING & {*report.reads} else 0,
            lake_file=self._place.path_of(table.name, files[0].path) if files else "",
            about=_lost_before(request),
        )

    def _lake_readings(
        self,
        table: LakeTable,
        files: Sequence[TimedFile],
        columns: pa.Schema,
        named: tuple[tuple[str, str], ...],
        time: str,
    ) -> list[Reading]:
        """Return readings of the files that may have rows in the range, filtered to the range."""
        request = self._request
        where = pc.field("broker") == self._broker
        where &= _within(time, request)
        if request.topic_read is not None:
            where &= pc.field("topic") == request.topic_read
        return _file_readings(self._place, table, files, request, columns, where, named)

    def _require_same_log(self, watermark: Watermark) -> None:
        """Raise RefusedError if messages may be missing, between lake and log or in the lake."""
        assert self._request.from_ms is not None
        if has_gap_since(self._place, self._broker, self._request.from_ms):
            raise RefusedError(
                gettext_noop("The lake may have gaps in this time range. See bronze.gaps.")
            )
        if self._log.extent()[0] > watermark.offset:
            raise RefusedError(gettext_noop("The log starts after the part the lake has read."))
        found = fingerprint_before(self._log.files(), watermark.offset)
        is_known = watermark.fingerprint in (NO_FINGERPRINT, found or watermark.fingerprint)
        if not is_known or self._log.end(watermark.offset) < watermark.offset:
            raise RefusedError(gettext_noop("The log isn't the one the lake was filled from."))


def _within(time: str, request: Request) -> pc.Expression:
    """Return the condition that a time is in the requested range."""
    found = pc.field(time).is_valid()
    if request.from_ms is not None:
        found &= pc.field(time) >= moment_of(request.from_ms)
    if request.to_ms is not None:
        found &= pc.field(time) < moment_of(request.to_ms)
    return found


def _file_readings(
    place: LakePlace,
    table: LakeTable,
    files: Sequence[TimedFile],
    request: Request,
    columns: pa.Schema,
    where: pc.Expression,
    named: tuple[tuple[str, str], ...] = (),
) -> list[Reading]:
    first = None if request.from_ms is None else moment_of(request.from_ms)
    last = None if request.to_ms is None else moment_of(request.to_ms)
    shares: list[list[TimedFile]] = [[]]
    size = 0
    for file in files:
        if file.may_be_within(first, last):
            if shares[-1] and size + file.size > SHARE_BYTES:
                shares.append([])
                size = 0
            shares[-1].append(file)
            size += file.size
    return [
        LakeReading(place, table, tuple(share), columns, named, where) for share in shares if share
    ]


def _samples(request: Request) -> Input:
    report = request.report
    if request.lake is None:
        raise ReportError(NO_LAKE)
    try:
        place = LakePlace.of(request.lake, request.lake_state, os.environ)
        files = timed_files_of(SAMPLES.existing(place), "minute") if SAMPLES.exists(place) else []
    except (DeltaError, pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ReportError(
            f"The lake {request.lake} can't be read: {reason}. Check that the lake exists and that "
            "this user can read it."
        ) from error
    ends = [(file.first, file.last) for file in files if file.first and file.last]
    if not ends:
        raise ReportError(NO_SAMPLES.format(uri=place.uri))
    first, last = min(each for each, _ in ends), max(each for _, each in ends)
    if (request.from_ms is not None and moment_of(request.from_ms) > last) or (
        request.to_ms is not None and moment_of(request.to_ms) <= first
    ):
        raise ReportError(NO_SAMPLES_IN_RANGE.format(first=first, last=last))
    first_ms, last_ms = (int(each.timestamp() * 1000) for each in (first, last))
    columns = pa.schema(
        [*(field for field in SAMPLES.file_schema), pa.field(DAMAGE_COLUMN, DAMAGE_TYPE)]
    )
    where = _within("minute", request) & pc.field("metric").isin(list(report.samples))
    about = [("sampled_from", str(first_ms)), ("sampled_to", str(last_ms))]
    lost = _lost_before(request)
    return Input(
        SAMPLES.name,
        _file_readings(place, SAMPLES, files, request, columns, where),
        columns,
        step_for(report, span_seconds(request, first_ms)),
        stored_from_ms=first_ms,
        has_expired=True,
        lake_file=place.path_of(SAMPLES.name, files[0].path),
        about=(*about, *lost),
    )


def _lost_before(request: Request) -> tuple[tuple[str, str], ...]:
    """Return when the oldest message of the log was stored, as a placeholder; empty if unknown."""
    try:
        reader = _reader(request)
        stored = reader.stored_from_ms() if reader.extent()[0] else None
    except ReportError:
        stored = None
    return () if stored is None else (("log_stored_from", str(stored)),)
