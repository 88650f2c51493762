"""The report catalogue: the output of `python -m analytics describe`.

The console has no built-in reports. It builds forms, command lines and pages from the descriptions,
and reloads them when a file of the analytics package changes. This doesn't start a JVM.
"""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from django.conf import settings
from django.core.cache import cache
from django.utils.translation import gettext as _

from broker_core.environment import without_secrets
from console.data.pipeline.program import program

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

DESCRIBE_SECONDS_MAX = 30
# How long to wait before running the program again after a failure.
FAILURE_KEPT_S = 10
FORMAT = 1
CACHE_KEY = "reports.catalog"
TOPIC_PARAMETER = "topic"
"""The option that limits any message report to one topic."""


class Choice(msgspec.Struct, frozen=True):
    """A choice in a form; None omits the parameter."""

    value: int | str | None
    label: str


class Parameter(msgspec.Struct, frozen=True):
    """An option `--name` of the report program, and its form field."""

    name: str
    type: Literal["integer", "text", "topic"]
    label: str
    help: str = ""
    default: int | str | None = None
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[Choice, ...] = ()


class Column(msgspec.Struct, frozen=True):
    """A column of a result.

    `link` is the kind of thing its values name: a topic or a group. `words` are labels for some
    values,
    and `missing` is the label for no value. Hidden columns only appear in files. `from_messages_of`
    is
    the column with the topic whose messages a value comes from, or "" for names and figures.
    """

    name: str
    type: Literal["bigint", "int", "string", "timestamp"]
    label: str
    unit: str = ""
    link: str = ""
    words: dict[str, str] = {}
    missing: str = ""
    is_shown: bool = True
    from_messages_of: str = ""

    @property
    def is_number(self) -> bool:
        return self.type in ("bigint", "int")


class Total(msgspec.Struct, frozen=True):
    """A number over all rows; a result has its value under the same name."""

    name: str
    label: str
    unit: str = ""
    note: str = ""


class Chart(msgspec.Struct, frozen=True):
    """Columns for values over time, stacked by series; readings can't be summed over time."""

    label: str
    time: str
    value: str
    series: str
    step_seconds: int
    is_reading: bool = False


class Breakdown(msgspec.Struct, frozen=True):
    """Sums of columns, grouped by another column."""

    label: str
    by: str
    sums: tuple[str, ...]


class Bars(msgspec.Struct, frozen=True):
    """Sums of a column grouped by another one, drawn as bars."""

    label: str
    by: str
    value: str
    ranked: bool = True


class Behind(msgspec.Struct, frozen=True):
    """The columns that identify the messages a row counts; see analytics.reports.report."""

    topic: str
    first: str = ""
    last: str = ""
    seconds: int = 0
    key: str = ""
    prefixes: dict[str, str] = {}


class Need(msgspec.Struct, frozen=True):
    """A requirement of a run; it is met if the command `check` exits with code 0."""

    name: str
    label: str
    check: tuple[str, ...]


class Report(msgspec.Struct, frozen=True):
    """A report, as in `describe` and in each result.

    A report that reads samples needs a lake with the collector's data.
    """

    name: str
    title: str
    question: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    totals: tuple[Total, ...] = ()
    chart: Chart | None = None
    breakdown: Breakdown | None = None
    bars: Bars | None = None
    needs: tuple[Need, ...] = ()
    behind: Behind | None = None
    reads_samples: bool = False

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.is_shown)

    def column(self, name: str) -> Column:
        """Return a column by its name.

        Raises:
            ValueError: the report has no such column.
        """
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            raise ValueError(f"the report {self.name} has no column {name}")
        return found


class Description(msgspec.Struct, frozen=True):
    """The complete output of `describe`."""

    format: int
    reports: tuple[Report, ...]


class CatalogError(Exception):
    """The program doesn't describe its reports; the text is a sentence for pages."""


def reports() -> dict[str, Report]:
    """Return the reports by name; run the analytics program again if its files have changed.

    Raises:
        CatalogError: the program's output isn't a description.
    """
    identity = _identity()
    known = cache.get(CACHE_KEY)
    if known is None or known[0] != identity:
        try:
            known = identity, _described(), ""
        except CatalogError as error:
            known = identity, {}, str(error)
        cache.set(CACHE_KEY, known, FAILURE_KEPT_S if known[2] else None)
    if known[2]:
        raise CatalogError(known[2])
    found: dict[str, Report] = known[1]
    return found


def known_reports() -> dict[str, Report]:
    """Return the reports by name, or nothing after a failure, which `health` explains."""
    try:
        return reports()
    except CatalogError:
        return {}


def report_of(description: Any) -> Report:
    """Return the report from the description in a result.

    Raises:
        ValueError: the description is invalid.
    """
    return msgspec.convert(description, Report)


def words(report: Report, parameters: Mapping[str, Any], out: Path) -> list[str]:
    """Return the job of a run, without parameters that the report doesn't have."""
    found = [report.name, "--store", str(settings.TREBUCHET_STORE), "--out", str(out)]
    for option, given in (
        ("--commit-log", settings.TREBUCHET_COMMIT_LOG),
        ("--brokers", settings.TREBUCHET_SPARK_BROKERS),
        ("--lake", settings.TREBUCHET_LAKE),
        ("--lake-state", lake_state()),
    ):
        if given:
            found += [option, str(given)]
    for parameter in report.parameters:
        value = parameters.get(parameter.name)
        if value is not None and value != "":
            found += [f"--{parameter.name}", str(value)]
    return found


def lake_state() -> Path | None:
    """Return the state path of a lake in S3, or None for a directory, which includes its state."""
    return Path(settings.TREBUCHET_DATA) / "lake" if "://" in settings.TREBUCHET_LAKE else None


def _identity() -> tuple[object, ...]:
    """Return a value that changes with the program and its files."""
    files = sorted((Path(settings.BASE_DIR) / "analytics").rglob("*.py"))
    return (*program(), *((str(path), path.stat().st_mtime_ns) for path in files))


def _described() -> dict[str, Report]:
    words = [*program(), "describe"]
    try:
        answer = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=settings.BASE_DIR,
            env=without_secrets(os.environ),
            timeout=DESCRIBE_SECONDS_MAX,
            check=False,
        )
    except OSError as error:
        raise CatalogError(
            _("Couldn't start the analytics program %(program)s: %(reason)s.")
            % {"program": words[0], "reason": error.strerror}
        ) from error
    except subprocess.TimeoutExpired as error:
        raise CatalogError(
            _("The analytics program didn't list its reports within %(seconds)s s.")
            % {"seconds": DESCRIBE_SECONDS_MAX}
        ) from error
    text = answer.stderr.decode("utf-8", "replace").strip()
    if answer.returncode:
        logger.error("describe failed code=%d error=%s", answer.returncode, text)
        raise CatalogError(
            _("The analytics program isn't working: %(reason)s")
            % {"reason": text.rpartition("\n")[2] or _("no reason given.")}
        )
    try:
        description = msgspec.json.decode(answer.stdout, type=Description)
    except msgspec.MsgspecError as error:
        raise CatalogError(
            _("The analytics program describes its reports in an unknown format: %(why)s.")
            % {"why": error}
        ) from error
    if description.format != FORMAT:
        raise CatalogError(
            _(
                "The analytics program describes its reports in format %(theirs)s; the console "
                "expects %(ours)s."
            )
            % {"theirs": description.format, "ours": FORMAT}
        )
    return {report.name: report for report in description.reports}
