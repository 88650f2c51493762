"""The catalogue of reports: the answer of `python -m analytics describe`.

The console knows no report itself. It makes forms, command lines and pages from the description,
and asks again when a file of the analytics package has changed. That starts no JVM.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from django.conf import settings
from django.core.cache import cache
from django.utils.translation import gettext as _

from broker_core.environment import without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

DESCRIBE_SECONDS_MAX = 30
# After a failure, the program is asked again this much later.
FAILURE_KEPT_S = 10
FORMAT = 1
CACHE_KEY = "reports.catalog"
TOPIC_PARAMETER = "topic"
"""The option that narrows any report of messages to one topic."""


class Choice(msgspec.Struct, frozen=True):
    """A value that a form offers; None leaves the parameter out."""

    value: int | str | None
    label: str


class Parameter(msgspec.Struct, frozen=True):
    """An option `--name` of the report's program and a field of its form."""

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

    `link` says what its values name: a topic, a group; `words` how some of its values are said, and
    `missing` that there is none. One that is not shown is in files only. `from_messages_of` is the
    column that names the topic whose messages a value comes from, "" for names and figures.
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
    """A number over all rows; a result carries its value under its name."""

    name: str
    label: str
    unit: str = ""
    note: str = ""


class Chart(msgspec.Struct, frozen=True):
    """Columns for values over time, stacked by series; readings have no sum over time."""

    label: str
    time: str
    value: str
    series: str
    step_seconds: int
    is_reading: bool = False


class Breakdown(msgspec.Struct, frozen=True):
    """Sums of columns for each value of another column."""

    label: str
    by: str
    sums: tuple[str, ...]


class Bars(msgspec.Struct, frozen=True):
    """Sums of a column for each value of another, as bars."""

    label: str
    by: str
    value: str
    ranked: bool = True


class Behind(msgspec.Struct, frozen=True):
    """Which columns of a row say what messages it counts; see analytics.reports.report."""

    topic: str
    first: str = ""
    last: str = ""
    seconds: int = 0
    key: str = ""
    prefixes: dict[str, str] = {}


class Need(msgspec.Struct, frozen=True):
    """A requirement of a run; the command `check` ends with code 0 if it is met."""

    name: str
    label: str
    check: tuple[str, ...]


class Report(msgspec.Struct, frozen=True):
    """A report, as `describe` and each result contain it.

    One that reads samples is made of what the collector found, and needs a lake.
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
    """The whole answer of `describe`."""

    format: int
    reports: tuple[Report, ...]


class CatalogError(Exception):
    """The program does not describe its reports; the text is a sentence for pages."""


def reports() -> dict[str, Report]:
    """Return the reports by name; asks the analytics program when its files have changed.

    Raises:
        CatalogError: it does not answer with a description.
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
    """Return the reports by name, none after a failure: `health` says why."""
    try:
        return reports()
    except CatalogError:
        return {}


def report_of(description: Any) -> Report:
    """Return the report of the description in a result.

    Raises:
        ValueError: it is not a description.
    """
    return msgspec.convert(description, Report)


def command(report: Report, parameters: Mapping[str, Any], out: Path) -> list[str]:
    """Return the command line of a run, without parameters that the report does not have."""
    words = [*program(), report.name, "--store", str(settings.TREBUCHET_STORE), "--out", str(out)]
    for option, given in (
        ("--commit-log", settings.TREBUCHET_COMMIT_LOG),
        ("--master", settings.TREBUCHET_SPARK_MASTER),
        ("--driver-host", settings.TREBUCHET_SPARK_DRIVER_HOST),
        ("--brokers", settings.TREBUCHET_SPARK_BROKERS),
        ("--lake", settings.TREBUCHET_LAKE),
        ("--lake-state", lake_state()),
    ):
        if given:
            words += [option, str(given)]
    for parameter in report.parameters:
        value = parameters.get(parameter.name)
        if value is not None and value != "":
            words += [f"--{parameter.name}", str(value)]
    return words


def lake_state() -> Path | None:
    """Return where the state of a lake in S3 is, None for a directory, which holds its own."""
    return Path(settings.TREBUCHET_DATA) / "lake" if "://" in settings.TREBUCHET_LAKE else None


def program() -> list[str]:
    """Return the command of the analytics program, without arguments."""
    given = getattr(settings, "TREBUCHET_ANALYTICS_COMMAND", None)
    return list(given) if given else [sys.executable, "-m", "analytics"]


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
            _("The analytics program %(program)s cannot be started: %(reason)s.")
            % {"program": words[0], "reason": error.strerror}
        ) from error
    except subprocess.TimeoutExpired as error:
        raise CatalogError(
            _("The analytics program does not say within %(seconds)s s what reports there are.")
            % {"seconds": DESCRIBE_SECONDS_MAX}
        ) from error
    said = answer.stderr.decode("utf-8", "replace").strip()
    if answer.returncode:
        logger.error("describe failed: code=%d: %s", answer.returncode, said)
        raise CatalogError(
            _("The analytics program does not run: %(reason)s")
            % {"reason": said.rpartition("\n")[2] or _("it gives no reason.")}
        )
    try:
        description = msgspec.json.decode(answer.stdout, type=Description)
    except msgspec.MsgspecError as error:
        raise CatalogError(
            _("The analytics program describes its reports in an unknown way: %(why)s.")
            % {"why": error}
        ) from error
    if description.format != FORMAT:
        raise CatalogError(
            _("The analytics program describes its reports in format %(theirs)s, not %(ours)s.")
            % {"theirs": description.format, "ours": FORMAT}
        )
    return {report.name: report for report in description.reports}
