"""Runs and schedules as the templates show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from django.utils.translation import gettext as _

from console.reports import catalog, forms, schedules
from console.reports.models import ReportRun, RunState

if TYPE_CHECKING:
    from datetime import datetime

    from django_celery_beat.models import PeriodicTask

LOG_LINES_SHOWN = 12

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
    report = catalog.REPORTS.get(name)
    return name if report is None else report.title


def parameters_in_words(parameters: dict[str, Any]) -> str:
    hours = str(parameters.get("hours") or "")
    span = dict(forms.RANGES).get(hours)
    words = str(span) if span is not None else _("Last %(hours)s hours") % {"hours": hours}
    topic = parameters.get("topic")
    return f"{words} · {topic}" if topic else words


class ShownRun:
    """A run with what a template needs besides its columns."""

    def __init__(self, run: ReportRun) -> None:
        self.run = run
        self.state = run.shown_state
        self.failure = run.shown_failure

    @property
    def title(self) -> str:
        return report_title(self.run.report)

    @property
    def parameters(self) -> str:
        return parameters_in_words(self.run.parameters)

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
        return _("a schedule that is gone") if user is None else user.get_username()

    @property
    def created_ms(self) -> int | None:
        return milliseconds(self.run.created_at)

    @property
    def finished_ms(self) -> int | None:
        return milliseconds(self.run.finished_at)

    @property
    def log_end(self) -> str:
        """The last lines of the log, few enough to be read while they change."""
        return "\n".join(self.run.log_tail.splitlines()[-LOG_LINES_SHOWN:])

    @property
    def messages(self) -> int | None:
        result = self.run.result
        return None if result is None else whole(result.get("messages"))

    @property
    def bytes(self) -> int | None:
        result = self.run.result
        return None if result is None else whole(result.get("bytes"))


def whole(value: Any) -> int | None:
    """Return a number that crossed JSON as a string, None for what is none."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class ShownSchedule:
    """A schedule in words, with its next runs."""

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


def shown_schedules() -> list[ShownSchedule]:
    now = timezone.now()
    shown = []
    for schedule in schedules.all_schedules():
        arguments = schedules.arguments(schedule)
        shown.append(
            ShownSchedule(
                schedule=schedule,
                title=report_title(str(arguments.get("report", ""))),
                parameters=parameters_in_words(arguments.get("parameters") or {}),
                words=schedules.in_words(schedule),
                next_ms=[milliseconds(when) for when in schedules.next_runs(schedule, now)],
                last_ms=milliseconds(schedule.last_run_at),
            )
        )
    return shown
