"""What a report is: what a person may set, what it reads, what it makes, how that is shown.

`describe` says all of it as JSON; whoever shows a report needs nothing else about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark.sql import functions as F  # noqa: N812 - as in Spark's own documentation
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from analytics.schemas import MESSAGES_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import Column as Expression, DataFrame

    from analytics.facts import StoreFacts

Value: TypeAlias = int | str
ParameterType: TypeAlias = Literal["integer", "text", "topic"]
Unit: TypeAlias = Literal["", "messages", "bytes", "milliseconds", "permille"]
Link: TypeAlias = Literal["", "topic", "group"]

TYPE_NAMES: dict[DataType, str] = {
    LongType(): "bigint",
    IntegerType(): "int",
    StringType(): "string",
    TimestampType(): "timestamp",
}
"""The names of column types in `describe` and in result.json."""

POINTS_MAX = 1_500
# Each divides the next but the last, so that the points of a day or an hour are whole.
STEPS_S = tuple(60 * minutes for minutes in (1, 5, 10, 30, 60, 240, 720, 1_440, 10_080, 43_200))


def gettext_noop(text: str) -> str:
    """Mark a text for the console's message catalogues; the console translates it."""
    return text


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that a form offers, None for leaving the parameter out."""

    value: Value | None
    label: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a person may set: the option `--name` of the command line, a field of a form.

    `minimum` and `maximum` bound an integer, or the length of a text. `default` is what a form
    starts with; the program itself adds nothing that was left out.
    """

    name: str
    type: ParameterType
    label: str
    help: str = ""
    default: Value | None = None
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result.

    `link` says what its values name, so that a page can lead there. `words` are how a page says
    those of its values that are words of ours, `missing` what it says where there is no value. One
    that is not shown is in files, and in sums. `from_messages_of` is for values that only messages
    tell (keys, tags, properties): the column that names the topic of these messages. Whoever may
    not see them gets no value.
    """

    name: str
    type: DataType
    label: str
    unit: Unit = ""
    link: Link = ""
    words: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""
    is_shown: bool = True
    from_messages_of: str = ""


@dataclass(frozen=True, slots=True)
class Total:
    """A number over all rows: a column's sum, maximum or distinct values, or the rows' number."""

    name: str
    label: str
    how: Literal["sum", "max", "distinct", "rows"]
    column: str = ""
    unit: Unit = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Values over time, stacked by series; a point stands for `step_seconds` or more.

    How much more is decided for each run (`step_for`), and the result says it. Readings, what is
    there at a time, have no sum over time; other values count what came in a step.
    """

    label: str
    time: str
    value: str
    series: str
    step_seconds: int
    is_reading: bool = False


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Sums of columns for each value of another, the largest of the first column on top."""

    label: str
    by: str
    sums: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bars:
    """Sums of a column for each value of another, as bars: the largest first, or in row order."""

    label: str
    by: str
    value: str
    ranked: bool = True


@dataclass(frozen=True, slots=True)
class Behind:
    """Which columns of a row say what messages it counts, so that a page can lead to them.

    They are of the topic in `topic`, and stored from the time in `first`: up to that in `last`, or
    for `seconds`, or for the run's step of time with neither. Without `first`, in the run's time.
    `prefixes` are for numbers whose messages are in topics named after what `topic` holds: of each
    such column what comes before the name; other numbers lead nowhere then.
    """

    topic: str = "topic"
    first: str = ""
    last: str = ""
    seconds: int = 0
    key: str = ""
    prefixes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figure:
    """A value in a sentence, and its unit."""

    value: Value
    unit: Unit = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What matters in a result: a sentence with places `%(name)s` for its figures."""

    text: str
    figures: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LakeQuery:
    """The transform as a query of DuckDB over the lake, with the same rows.

    It knows rows of a table of the lake, narrowed as was asked, as `given`, the step of time in
    seconds as `$step`, and parameters by their names. `values` stand for those left out. When the
    step of a time begins is `start_of_step(time, $step)`.
    """

    table: Literal["bronze.messages", "gold.traffic_minute"]
    text: str
    values: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SamplesQuery:
    """How DuckDB makes a report of what the console's collector sampled, in the place of Spark.

    The text knows rows of bronze.samples of the time asked for, and of these metrics, as `given`,
    the step of time in seconds as `$step`, and the report's own parameters by their names, null
    where they were left out. When the step of a time begins is `start_of_step(time, $step)`.
    """

    metrics: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Need:
    """What must be there before a run can start; `module` prints what is missing, see describe."""

    name: str
    label: str
    module: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report.

    `reads` are columns of MESSAGES; `transform` makes `columns` of them, given the parameters and
    the step of time in seconds; the result is sorted by `sorted_by`. `prepare` comes before it and
    adds what the store's configuration files say. `find` says what matters in a result that has
    rows. `system_topics` shows the transform what the broker keeps for itself, too; `dead_letters`
    says that they count in it. `lake` says the same as the transform where a lake can. With
    `grouped_by`, a source that can tells messages alike in these columns as one row: `messages`
    says of how many, sizes are sums, and times are cut to the step; see `counted`.

    With `client_traces` the transform gets the traces of RocketMQ's clients as well, the only rows
    that have their `body` then. `narrowed_by` is the column that names the topic of a result whose
    messages are in others: all are read, and rows of the topic that was asked for are kept.
    `chosen` returns what the parameters make of a report that reads more for some of them.

    A report of `samples` reads nothing else: no message, no log, no Spark.
    """

    name: str
    title: str
    question: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    sorted_by: tuple[str, ...]
    reads: tuple[str, ...] = ()
    transform: Callable[[DataFrame, Mapping[str, Value], int], DataFrame] | None = None
    samples: SamplesQuery | None = None
    totals: tuple[Total, ...] = ()
    chart: Chart | None = None
    breakdown: Breakdown | None = None
    bars: Bars | None = None
    find: Callable[[pa.Table], Finding] | None = None
    prepare: Callable[[DataFrame, StoreFacts], DataFrame] | None = None
    system_topics: bool = False
    dead_letters: bool = False
    client_traces: bool = False
    narrowed_by: str = ""
    chosen: Callable[[Mapping[str, Value]], Report] | None = None
    lake: LakeQuery | None = None
    needs: tuple[Need, ...] = ()
    behind: Behind | None = None
    grouped_by: tuple[str, ...] = ()

    @property
    def schema(self) -> StructType:
        """The shape of the result."""
        return StructType([StructField(column.name, column.type) for column in self.columns])

    def with_parameters(self, parameters: Mapping[str, Value]) -> Report:
        """Return the report that these parameters ask for."""
        return self if self.chosen is None else self.chosen(parameters)


def counted(messages: DataFrame) -> DataFrame:
    """Return rows with how many messages each stands for: one, where the source tells each."""
    if MESSAGES_COLUMN in messages.columns:
        return messages
    return messages.withColumn(MESSAGES_COLUMN, F.lit(1))


def start_of_step(seconds: Expression, step_seconds: int) -> Expression:
    """Return the time at which the step begins that holds some seconds since the epoch.

    SQL for DuckDB has a macro of the same name, of a moment and the seconds of a step.
    """
    step = F.lit(step_seconds)
    return F.timestamp_seconds(F.floor(seconds / step) * step)


def step_for(report: Report, span_seconds: int) -> int:
    """Return the step of time for a range: the least that needs at most POINTS_MAX points."""
    least = STEPS_S[0] if report.chart is None else report.chart.step_seconds
    steps = [step for step in STEPS_S if step >= least]
    return next((step for step in steps if span_seconds // step < POINTS_MAX), steps[-1])


JAVA = Need("java", gettext_noop("Java 17 or later"), "analytics.java")

HOURS = Parameter(
    name="hours",
    type="integer",
    label=gettext_noop("Time range"),
    help=gettext_noop("Counted back from the start of the run, to a whole minute."),
    default=24,
    minimum=1,
    maximum=24 * 366,
    choices=(
        Choice(1, gettext_noop("Last hour")),
        Choice(6, gettext_noop("Last 6 hours")),
        Choice(24, gettext_noop("Last 24 hours")),
        Choice(24 * 7, gettext_noop("Last 7 days")),
        Choice(24 * 30, gettext_noop("Last 30 days")),
        Choice(None, gettext_noop("Everything in the log")),
    ),
)
"""Narrows what is read by the time of storing. For every report of messages."""

SAMPLED_HOURS = replace(
    HOURS,
    help=gettext_noop(
        "Counted back from the start of the run, to a whole minute; the newest samples are up to "
        "an hour old."
    ),
    # Of the last hour there is at best a part.
    choices=(*HOURS.choices[1:-1], Choice(None, gettext_noop("Everything that was sampled"))),
)
"""Narrows what is read by the time of sampling. For every report of samples."""

TOPIC = Parameter(
    name="topic",
    type="topic",
    label=gettext_noop("Topic"),
    help=gettext_noop("Empty: all topics."),
    maximum=255,
)
"""Narrows what is read to one topic. For every report of messages."""

COMPARE = Parameter(
    name="compare",
    type="integer",
    label=gettext_noop("Comparison"),
    help=gettext_noop("The period before is as long, and is read as well."),
    default=1,
    minimum=0,
    maximum=1,
    choices=(
        Choice(1, gettext_noop("With the period before")),
        Choice(0, gettext_noop("None")),
    ),
)
"""Asks for the totals of the period before. For every report of messages, and of samples."""

MESSAGE_PARAMETERS = (HOURS, TOPIC, COMPARE)
