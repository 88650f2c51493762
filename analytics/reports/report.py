"""The definition of a report: its parameters, inputs, output and presentation.

`describe` returns all of it as JSON, so a program that shows reports needs nothing else.
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
# Each step divides the next, except the last two, so that a day or an hour has a whole number of
# points.
STEPS_S = tuple(60 * minutes for minutes in (1, 5, 10, 30, 60, 240, 720, 1_440, 10_080, 43_200))


def gettext_noop(text: str) -> str:
    """Mark a text for the console's message catalogues; the console translates it."""
    return text


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that a form offers; None leaves the parameter out."""

    value: Value | None
    label: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that a person may set: the option `--name` on the command line, a field of a
    form.

    `minimum` and `maximum` bound an integer, or the length of a text. `default` is the initial
    value in a form; the program itself applies no defaults.
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

    `link` is the kind of object that the values name, so that a page can link to it. `words` maps
    the report's own codes to labels; `missing` is the label of a null. A column that isn't shown is
    still in files and sums. `from_messages_of` marks values that are only in messages (keys, tags,
    properties): it names the column with the topic of these messages, and people who may not see
    the messages get no values.
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
    """A number over all rows: a column's sum, maximum or count of distinct values, or the row
    count.
    """

    name: str
    label: str
    how: Literal["sum", "max", "distinct", "rows"]
    column: str = ""
    unit: Unit = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Values over time, stacked by series; a point represents `step_seconds` or more.

    Each run chooses the actual step (`step_for`), which is in the result. Readings are states at a
    time and have no sum over time; other values count events in a step.
    """

    label: str
    time: str
    value: str
    series: str
    step_seconds: int
    is_reading: bool = False


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Sums of columns for each value of another column, sorted by the first sum, largest first."""

    label: str
    by: str
    sums: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bars:
    """Sums of a column for each value of another column as bars, largest first or in row order."""

    label: str
    by: str
    value: str
    ranked: bool = True


@dataclass(frozen=True, slots=True)
class Behind:
    """The columns that identify the messages counted in a row, so that a page can link to them.

    The messages are of the topic in `topic`, stored from the time in `first` up to the time in
    `last`, or for `seconds`, or for the run's time step if both are missing. Without `first`, they
    are in the run's time range. `prefixes` is for columns whose messages are in topics named after
    `topic`: it maps these columns to their prefixes, and the other columns then have no link.
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
    """The main point of a result: a sentence with placeholders `%(name)s` for its figures."""

    text: str
    figures: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Need:
    """A requirement of a run; `module` prints the problem, see describe."""

    name: str
    label: str
    module: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report.

    `reads` are columns of MESSAGES; `transform` turns them into `columns`, given the parameters and
    the time step in seconds; the result is sorted by `sorted_by`. `prepare` runs before it and adds
    facts from the store's configuration files. `find` returns the main point of a non-empty result.
    `system_topics` includes the broker's internal messages in the input; `dead_letters` says that
    dead letters count. With `grouped_by`, messages that agree in these columns may be combined into
    one row: `messages` is their number, sizes are sums, and times are rounded down to the step; see
    `counted`. Rows of the lake table `gold` represent messages in the same way.

    With `client_traces`, the transform also gets the traces of RocketMQ's clients; only these rows
    have their `body` then. `narrowed_by` is the result column with the topic, for reports that need
    messages of other topics: all are read, and the rows of the requested topic are kept. `chosen`
    returns the variant of the report for some parameters.

    A report of `samples` gets no messages: its transform uses the rows of SAMPLES of these metrics
    (see `analytics.lake.tables`).
    """

    name: str
    title: str
    question: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    sorted_by: tuple[str, ...]
    transform: Callable[[DataFrame, Mapping[str, Value], int], DataFrame]
    reads: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
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
    gold: str = ""
    needs: tuple[Need, ...] = ()
    behind: Behind | None = None
    grouped_by: tuple[str, ...] = ()

    @property
    def schema(self) -> StructType:
        """The schema of the result."""
        return StructType([StructField(column.name, column.type) for column in self.columns])

    def with_parameters(self, parameters: Mapping[str, Value]) -> Report:
        """Return the variant of the report for these parameters."""
        return self if self.chosen is None else self.chosen(parameters)


def counted(messages: DataFrame) -> DataFrame:
    """Return rows with the number of messages that each represents, 1 for single messages."""
    if MESSAGES_COLUMN in messages.columns:
        return messages
    return messages.withColumn(MESSAGES_COLUMN, F.lit(1))


def start_of_step(seconds: Expression, step_seconds: int) -> Expression:
    """Return the start of the time step that contains a time in seconds since the epoch."""
    step = F.lit(step_seconds)
    return F.timestamp_seconds(F.floor(seconds / step) * step)


def step_for(report: Report, span_seconds: int) -> int:
    """Return the time step for a range: the shortest step that needs at most POINTS_MAX points."""
    least = STEPS_S[0] if report.chart is None else report.chart.step_seconds
    steps = [step for step in STEPS_S if step >= least]
    return next((step for step in steps if span_seconds // step < POINTS_MAX), steps[-1])


JAVA = Need("java", gettext_noop("Java 17 or later"), "analytics.java")

HOURS = Parameter(
    name="hours",
    type="integer",
    label=gettext_noop("Time range"),
    help=gettext_noop("Counted back from the start of the run, rounded to a full minute."),
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
"""Filters by store time. For every report of messages."""

SAMPLED_HOURS = replace(
    HOURS,
    help=gettext_noop(
        "Counted back from the start of the run, rounded to a full minute. The newest samples "
        "are up to an hour old."
    ),
    # Not the last hour: its samples are incomplete.
    choices=(*HOURS.choices[1:-1], Choice(None, gettext_noop("All samples"))),
)
"""Filters by sampling time. For every report of samples."""

TOPIC = Parameter(
    name="topic",
    type="topic",
    label=gettext_noop("Topic"),
    help=gettext_noop("Leave empty for all topics."),
    maximum=255,
)
"""Filters by topic. For every report of messages."""

COMPARE = Parameter(
    name="compare",
    type="integer",
    label=gettext_noop("Comparison"),
    help=gettext_noop("The previous period has the same length and is read as well."),
    default=1,
    minimum=0,
    maximum=1,
    choices=(
        Choice(1, gettext_noop("With previous period")),
        Choice(0, gettext_noop("None")),
    ),
)
"""Adds the totals of the previous period. For every report of messages or samples."""

MESSAGE_PARAMETERS = (HOURS, TOPIC, COMPARE)
