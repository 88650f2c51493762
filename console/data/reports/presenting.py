"""Runs and schedules as displayed by the templates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from django.conf import settings
from django.db.models import Max
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext as _, ngettext

from console.data.reports import catalog, health, schedules
from console.data.reports.health import Problem
from console.data.reports.models import ReportRun, RunState
from console.data.reports.results import BarSums, Before, Engine, Finding
from console.ui.templatetags.ui import byte_size, count, duration, percent, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.utils.safestring import SafeString
    from django_celery_beat.models import PeriodicTask

    from console.data.reports.catalog import Column, Parameter, Report, Total

LOG_LINES_SHOWN = 12
TOTALS_IN_TABLE_MAX = 2
PERMILLE = 1_000
MS_A_SECOND, MS_A_MINUTE = 1_000, 60_000

MANY_TIMES_PERCENT = 1_000
# Pages for the things that a result's values name.
PAGES = {"topic": "topics:detail", "group": "groups:detail"}

STATE_COLOURS = {
    RunState.QUEUED: "off",
    RunState.STARTING: "info",
    RunState.RUNNING: "info",
    RunState.WRITING: "info",
    RunState.DONE: "ok",
    RunState.FAILED: "bad",
    RunState.CANCELLED: "warn",
}
STATE_ICONS = {
    RunState.QUEUED: "hourglass",
    RunState.STARTING: "loader-circle",
    RunState.RUNNING: "loader-circle",
    RunState.WRITING: "loader-circle",
    RunState.DONE: "circle-check",
    RunState.FAILED: "circle-x",
    RunState.CANCELLED: "square",
}


def milliseconds(when: datetime | None) -> int | None:
    return None if when is None else int(when.timestamp() * 1000)


def report_title(name: str) -> str:
    report = catalog.known_reports().get(name)
    return name if report is None else gettext(report.title)


def parameters_in_words(report: Report | None, parameters: Mapping[str, Any]) -> str:
    """Return a run's parameters as one line: "Last 24 hours · orders"."""
    if report is None:
        return " · ".join(f"{name} {value}" for name, value in parameters.items())
    words = (in_words(each, parameters.get(each.name)) for each in report.parameters)
    return " · ".join(filter(None, words))


def in_words(parameter: Parameter, value: Any) -> str:
    """Return the label of a parameter; "" if it was omitted and that choice has no label."""
    for choice in parameter.choices:
        if choice.value == value:
            return gettext(choice.label)
    if value is None:
        return ""
    if parameter.type == "topic":
        return str(value)
    return f"{gettext(parameter.label)}: {value}"


def shown_value(value: Any, unit: str) -> SafeString | str:
    """Format a number stored as a JSON string; a dash for None."""
    number = whole(value)
    match unit:
        case "bytes":
            return byte_size(number)
        case "permille":
            return percent(None if number is None else number / PERMILLE)
        case "milliseconds":
            return milliseconds_text(number)
        case _:
            return count(number)


def milliseconds_text(number: int | None) -> SafeString | str:
    """Format a time in milliseconds, using larger units above a minute."""
    if number is None:
        return unknown()
    if abs(number) < MS_A_SECOND:
        return f"{number} ms"
    if abs(number) < MS_A_MINUTE:
        return f"{number / MS_A_SECOND:.1f} s"
    return duration(number / MS_A_SECOND)


def shown_cell(value: Any, column: Column) -> SafeString | str:
    """Format one value of a result row."""
    if value is None and column.missing:
        return gettext(column.missing)
    if column.is_number:
        return shown_value(value, column.unit)
    if value is None:
        return unknown(_("No value in this result."))
    return shown_time(str(value)) if column.type == "timestamp" else word(value, column)


def word(value: Any, column: Column) -> str:
    """Return a result's text, translated if it is in our vocabulary."""
    label = column.words.get(str(value))
    return str(value) if label is None else gettext(label)


def shown_time(text: str) -> str:
    """Format an ISO time in UTC, omitting zero seconds."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    when = (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
    return f"{when:%Y-%m-%d %H:%M:%S}" if when.second else f"{when:%Y-%m-%d %H:%M}"


@dataclass(frozen=True, slots=True)
class ShownTotal:
    """A total with its value, and the previous period's value if known."""

    total: Total
    value: int | None
    before: int | None = None

    @property
    def text(self) -> SafeString | str:
        return shown_value(self.value, self.total.unit)

    @property
    def before_text(self) -> SafeString | str:
        return shown_value(self.before, self.total.unit)

    @property
    def change(self) -> str:
        """The change from the previous period: "+12 %"; "" if it is negligible."""
        if self.value is None or self.before is None or self.value == self.before:
            return ""
        if self.total.unit == "permille":
            points = (self.value - self.before) * 100 / PERMILLE
            return _("%(points)s points") % {"points": f"{points:+.1f}"}
        if not self.before:
            return ""
        change = (self.value - self.before) * 100 / self.before
        return f"{change:+.0f} %" if abs(change) < MANY_TIMES_PERCENT else many_times(change)


def many_times(change_percent: float) -> str:
    return _("%(times)s times as many") % {"times": f"{change_percent / 100 + 1:.0f}"}


def sentence(found: Any) -> str:
    """Return a finding as a sentence, or ""."""
    if found is None:
        return ""
    finding = msgspec.convert(found, Finding)
    figures = {
        name: figure_text(figure.value, figure.unit) for name, figure in finding.figures.items()
    }
    return gettext(finding.text) % figures


def figure_text(value: str, unit: str) -> SafeString | str:
    """Format a figure in a sentence; without a unit, it is a name or a plain number."""
    return shown_value(value, unit) if unit else value


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in a bar chart; `length` is in thousandths of the longest."""

    label: str
    text: SafeString | str
    length: int
    href: str = ""


def shown_bars(report: Report, result: Mapping[str, Any]) -> list[Bar]:
    """Return a result's bars, followed by the sum of all other values."""
    if report.bars is None or "bars" not in result:
        return []
    found = msgspec.convert(result["bars"], BarSums)
    column, by = report.column(report.bars.value), report.column(report.bars.by)
    pairs = [(word(bar.by, by), int(bar.value), href_of(bar.by, by)) for bar in found.rows]
    left_out = found.count - len(found.rows)
    if left_out:
        others = ngettext("%(number)s more", "%(number)s more", left_out)
        pairs.append((others % {"number": count(left_out)}, int(found.others), ""))
    longest = max([1, *(value for _, value, _ in pairs)])
    return [
        Bar(
            label or "-",
            shown_value(value, column.unit),
            max(0, value) * PERMILLE // longest,
            href,
        )
        for label, value, href in pairs
    ]


def href_of(value: Any, column: Column) -> str:
    """Return the page URL for a value, or ""."""
    page = PAGES.get(column.link)
    if page is None or not value:
        return ""
    return reverse(page, args=[str(value)])


def report_of(run: ReportRun) -> Report | None:
    """Return the report description from the result, or the current one if there is no result."""
    if run.result is not None:
        try:
            return catalog.report_of(run.result.get("report"))
        except ValueError:
            # An old result without a description.
            return None
    return catalog.known_reports().get(run.report)


class SparkWork(NamedTuple):
    """The work of a Spark application for a result."""

    application_id: str
    stages: int
    tasks: int
    rows: int


class ShownRun:
    """A run, with the additional values for templates."""

    def __init__(self, run: ReportRun) -> None:
        self.run = run
        self.state = run.shown_state
        self.failure = run.shown_failure
        self.report = report_of(run)

    @property
    def title(self) -> str:
        return self.run.report if self.report is None else gettext(self.report.title)

    @property
    def parameters(self) -> str:
        return parameters_in_words(self.report, self.run.parameters)

    @property
    def colour(self) -> str:
        return STATE_COLOURS[self.state]

    @property
    def icon(self) -> str:
        return STATE_ICONS[self.state]

    @property
    def is_active(self) -> bool:
        return self.run.is_active

    @property
    def is_done(self) -> bool:
        return self.state == RunState.DONE

    @property
    def origin(self) -> str:
        if self.run.schedule is not None:
            return str(self.run.schedule.name)
        user = self.run.requested_by
        return _("a deleted schedule") if user is None else user.get_username()

    @property
    def created_ms(self) -> int | None:
        return milliseconds(self.run.created_at)

    @property
    def finished_ms(self) -> int | None:
        return milliseconds(self.run.finished_at)

    @property
    def log_end(self) -> str:
        """The last lines of the log, few enough to follow live."""
        return "\n".join(self.run.log_tail.splitlines()[-LOG_LINES_SHOWN:])

    @property
    def totals(self) -> list[ShownTotal]:
        """The totals of the result; empty without a result."""
        result, report = self.run.result, self.report
        if result is None or report is None:
            return []
        values, before = result.get("totals") or {}, {}
        if self.before is not None:
            before = self.before.totals or {}
        return [
            ShownTotal(total, whole(values.get(total.name)), whole(before.get(total.name)))
            for total in report.totals
        ]

    @property
    def before(self) -> Before | None:
        """The previous period, or None if it wasn't requested."""
        if self.run.result is None or "before" not in self.run.result:
            return None
        return msgspec.convert(self.run.result["before"], Before)

    @property
    def stage(self) -> str:
        """The current stage as a phrase."""
        match self.run.stage:
            case "":
                return _("Waiting for a worker")
            case "starting":
                return _("Starting Spark")
            case "reading":
                return _("Reading messages")
            case "comparing":
                return _("Reading the previous period")
            case "writing":
                return _("Writing the result")
            case other:
                return other

    @property
    def before_from_ms(self) -> int | None:
        return None if self.before is None else whole(self.before.from_ms)

    @property
    def before_to_ms(self) -> int | None:
        return None if self.before is None else whole(self.before.to_ms)

    @property
    def sentence(self) -> str:
        return "" if self.run.result is None else sentence(self.run.result.get("finding"))

    @property
    def engine(self) -> Engine | None:
        """The engine that produced the result, or None for an old result that doesn't record it."""
        found = (self.run.result or {}).get("engine")
        return None if found is None else msgspec.convert(found, Engine)

    @property
    def origin_of_numbers(self) -> str:
        """The source of the numbers, and the engine that computed them."""
        engine = self.engine
        if engine is not None and engine.name != "spark":
            return _("Lake (earlier version)")
        if engine is not None and engine.brokers:
            return _("Brokers at %(name_servers)s, counted by Spark") % {
                "name_servers": engine.brokers
            }
        if engine is not None and engine.reads != "log":
            return _("Lake table %(table)s, counted by Spark") % {"table": engine.reads}
        return _("Message log, counted by Spark")

    @property
    def spark(self) -> SparkWork | None:
        """The Spark statistics of the result, or None for an old result without them."""
        engine = self.engine
        if engine is None or not engine.application_id:
            return None
        counts = int(engine.stages), int(engine.tasks), int(engine.rows)
        return SparkWork(engine.application_id, *counts)

    @property
    def erased(self) -> int:
        """Number of counted messages whose keys were erased on request."""
        return whole((self.run.result or {}).get("erased")) or 0

    @property
    def sampled_from_ms(self) -> int | None:
        """Start of the lake's samples, or None if the report doesn't read samples."""
        return whole((self.run.result or {}).get("sampled_from"))

    @property
    def sampled_to_ms(self) -> int | None:
        """The last minute with samples in the lake."""
        return whole((self.run.result or {}).get("sampled_to"))

    @property
    def engine_reason(self) -> str:
        """Why the lake wasn't used, or ""."""
        return "" if self.engine is None else sentence(self.engine.because)

    @property
    def seconds_left(self) -> float | None:
        """Estimated remaining reading time, or None if it is too early to say."""
        run, seconds = self.run, self.run.seconds
        share = run.progress_done / run.progress_total if run.progress_total else 0
        if seconds is None or run.stage != "reading" or not 0 < share < 1:
            return None
        return seconds / share - seconds

    @property
    def first_totals(self) -> list[ShownTotal]:
        """The totals that fit in a table of runs."""
        return self.totals[:TOTALS_IN_TABLE_MAX]


def whole(value: Any) -> int | None:
    """Return an integer stored as a JSON string, or None for any other value."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class ShownSchedule:
    """A schedule as a phrase, with its next runs."""

    schedule: PeriodicTask
    title: str
    parameters: str
    words: str
    next_ms: list[int | None]
    last_ms: int | None

    @property
    def first_ms(self) -> int | None:
        return self.next_ms[0] if self.next_ms else None

    @property
    def later_ms(self) -> list[int | None]:
        return self.next_ms[1:]


@dataclass(frozen=True, slots=True)
class ShownReport:
    """A report to start or schedule, with its unmet needs and last run."""

    report: Report
    problems: list[Problem]
    last: ReportRun | None

    @property
    def state(self) -> RunState | None:
        return None if self.last is None else self.last.shown_state

    @property
    def colour(self) -> str:
        return "off" if self.state is None else STATE_COLOURS[self.state]

    @property
    def last_ms(self) -> int | None:
        return None if self.last is None else milliseconds(self.last.created_at)


def lake_problems(report: Report) -> list[Problem]:
    """Return why a report of samples can't run: no samples are being collected."""
    if not report.reads_samples or settings.TREBUCHET_LAKE:
        return []
    return [
        Problem(
            _(
                "This report uses the lake's samples, but this appliance has no lake. Remove "
                "TREBUCHET_LAKE=false and restart deploy/up."
            ),
            "",
        )
    ]


def shown_reports() -> list[ShownReport]:
    newest = ReportRun.objects.order_by().values("report").annotate(last=Max("pk")).values("last")
    runs = ReportRun.objects.filter(pk__in=newest).defer("result", "log_tail")
    last = {run.report: run for run in runs}
    return [
        ShownReport(
            report,
            [
                *(
                    problem
                    for need in report.needs
                    if (problem := health.need_problem(need.check)) is not None
                ),
                *lake_problems(report),
            ],
            last.get(name),
        )
        for name, report in catalog.known_reports().items()
    ]


def shown_schedules() -> list[ShownSchedule]:
    now = timezone.now()
    shown = []
    for schedule in schedules.all_schedules():
        arguments = schedules.arguments(schedule)
        name = str(arguments.get("report", ""))
        shown.append(
            ShownSchedule(
                schedule=schedule,
                title=report_title(name),
                parameters=parameters_in_words(
                    catalog.known_reports().get(name), arguments.get("parameters") or {}
                ),
                words=schedules.in_words(schedule),
                next_ms=[milliseconds(when) for when in schedules.next_runs(schedule, now)],
                last_ms=milliseconds(schedule.last_run_at),
            )
        )
    return shown
