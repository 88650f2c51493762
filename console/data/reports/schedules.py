"""Report schedules: django-celery-beat's rows for our scheduled task."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from cron_descriptor import CasingTypeEnum, ExpressionDescriptor, FormatException, Options
from django.utils.translation import gettext, ngettext
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask
from django_celery_beat.tzcrontab import TzAwareCrontab

if TYPE_CHECKING:
    from collections.abc import Mapping

    from celery.schedules import crontab
    from django.db.models import QuerySet

SCHEDULED_TASK = "console.reports.run_scheduled_report"
NEXT_RUNS = 5
MINUTE_S = 60
UTC_NAME = "UTC"
# A run that beat sends later than this counts as missed.
LATE_S = 300
# How far back to look for the time that a run was due, nearest first.
LOOKBACKS = tuple(timedelta(hours=hours) for hours in (1, 25, 8 * 24, 32 * 24, 367 * 24))

INTERVAL_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400}


def all_schedules() -> QuerySet[PeriodicTask]:
    found: QuerySet[PeriodicTask] = (
        PeriodicTask.objects.filter(task=SCHEDULED_TASK)
        .select_related("interval", "crontab")
        .order_by("name")
    )
    return found


def arguments(schedule: PeriodicTask) -> dict[str, Any]:
    """Return the keyword arguments of a schedule, or {} if they are damaged."""
    try:
        kwargs = json.loads(schedule.kwargs or "{}")
    except ValueError:
        return {}
    return kwargs if isinstance(kwargs, dict) else {}


def slot(schedule: PeriodicTask, now: datetime) -> str:
    """Return the name of the time slot that contains `now`; each slot gets one run.

    For a daily time, the slot is the local time, which can occur twice when the clocks change. For
    any
    other cron schedule it is its last time in UTC, and for an interval a whole interval in UTC.
    """
    seconds = interval_seconds(schedule) or MINUTE_S
    due = due_at(schedule, now)
    if due is not None and schedule.crontab.hour != "*":
        zone = schedule.crontab.timezone
        return f"{schedule.pk}@{due.astimezone(zone):%Y-%m-%dT%H:%M} {zone}"
    start = int((due or now).timestamp()) // seconds * seconds
    return f"{schedule.pk}@{datetime.fromtimestamp(start, UTC):%Y-%m-%dT%H:%M:%SZ}"


def due_at(schedule: PeriodicTask, now: datetime) -> datetime | None:
    """Return the last time a cron schedule was due, up to a year ago, or None."""
    if schedule.crontab is None:
        return None
    cron = cron_at(schedule.crontab, now)
    for span in LOOKBACKS:
        found, after = None, next_time(cron, now - span)
        while after <= now:
            found, after = after, next_time(cron, after)
        if found is not None:
            return found
    return None


def is_late(schedule: PeriodicTask, now: datetime) -> bool:
    """Return whether a run that beat sends now was missed earlier."""
    due = due_at(schedule, now)
    return due is not None and (now - due).total_seconds() > LATE_S


def cron_at(schedule: CrontabSchedule, now: datetime) -> crontab:
    """Return a Celery cron schedule.

    Celery counts in local time, so an hourly schedule would skip the hour that occurs twice when
    clocks
    change. Hourly schedules therefore use a zone without clock changes.
    """
    if schedule.hour != "*":
        cron: crontab = schedule.schedule
        return cron
    even: crontab = TzAwareCrontab(
        minute=schedule.minute,
        hour=schedule.hour,
        day_of_week=schedule.day_of_week,
        day_of_month=schedule.day_of_month,
        month_of_year=schedule.month_of_year,
        tz=timezone(now.astimezone(schedule.timezone).utcoffset() or timedelta()),
    )
    return even


def next_time(cron: crontab, after: datetime) -> datetime:
    """Return the next time after the given one."""
    last, delta, _now = cron.remaining_delta(after)
    found: datetime = (last + delta).astimezone(UTC)
    return found


def channels_of(schedule: PeriodicTask) -> list[int]:
    """Return the IDs of the channels that receive the results."""
    found = arguments(schedule).get("channels")
    return [each for each in found if isinstance(each, int)] if isinstance(found, list) else []


def zone_of(schedule: PeriodicTask) -> str:
    """Return the name of a schedule's time zone."""
    return UTC_NAME if schedule.crontab is None else str(schedule.crontab.timezone)


def timing(schedule: PeriodicTask) -> dict[str, Any]:
    """Return a schedule's timing for the schedule form."""
    if schedule.interval is not None:
        return {
            "kind": "interval",
            "every": schedule.interval.every,
            "period": schedule.interval.period,
        }
    cron = schedule.crontab
    return {
        "kind": "cron",
        "cron": expression(cron) if cron is not None else "0 * * * *",
        "timezone": zone_of(schedule),
    }


def interval_seconds(schedule: PeriodicTask) -> int | None:
    """Return the seconds between runs of an interval schedule, or None for other kinds."""
    interval = schedule.interval
    if interval is None:
        return None
    return max(1, int(interval.every) * INTERVAL_SECONDS.get(interval.period, 1))


def next_runs(schedule: PeriodicTask, now: datetime, count: int = NEXT_RUNS) -> list[datetime]:
    """Return the next times of a schedule, soonest first; empty if it is disabled."""
    if not schedule.enabled:
        return []
    if (seconds := interval_seconds(schedule)) is not None:
        step = timedelta(seconds=seconds)
        first = (schedule.last_run_at or schedule.date_changed or now) + step
        # Overdue: beat was down and runs it as soon as it is back.
        first = max(first, now)
        return [first + step * index for index in range(count)]
    if schedule.crontab is None:
        return []
    cron = cron_at(schedule.crontab, now)
    times: list[datetime] = []
    after = now
    for _ in range(count):
        after = next_time(cron, after)
        times.append(after)
    return times


def in_words(schedule: PeriodicTask) -> str:
    """Return the schedule as a phrase: "every 2 hours", "at 30 minutes past the hour (UTC)"."""
    interval = schedule.interval
    if interval is not None:
        return every_in_words(int(interval.every), interval.period)
    if schedule.crontab is not None:
        return f"{cron_in_words(expression(schedule.crontab))} ({schedule.crontab.timezone})"
    return gettext("on a schedule of another type")


def every_in_words(number: int, period: str) -> str:
    match period:
        case "days":
            words = ngettext("every day", "every %(number)d days", number)
        case "hours":
            words = ngettext("every hour", "every %(number)d hours", number)
        case "minutes":
            words = ngettext("every minute", "every %(number)d minutes", number)
        case _:
            words = ngettext("every second", "every %(number)d seconds", number)
    return words % {"number": number}


def expression(cron: CrontabSchedule) -> str:
    """Return a schedule as five cron fields."""
    return " ".join(
        str(field)
        for field in (
            cron.minute,
            cron.hour,
            cron.day_of_month,
            cron.month_of_year,
            cron.day_of_week,
        )
    )


def cron_in_words(text: str) -> str:
    if text == "0 * * * *":
        return gettext("every hour, on the hour")
    options = Options()
    options.casing_type = CasingTypeEnum.LowerCase
    options.use_24hour_time_format = True
    try:
        return str(ExpressionDescriptor(text, options).get_description())
    except FormatException:
        return f"cron {text}"


def set_interval(schedule: PeriodicTask, every: int, period: str) -> None:
    interval, _ = IntervalSchedule.objects.get_or_create(every=every, period=period)
    schedule.interval, schedule.crontab = interval, None
    schedule.save()


def set_cron(schedule: PeriodicTask, text: str, zone: str = UTC_NAME) -> None:
    """Set a schedule to five validated cron fields in a time zone."""
    minute, hour, day_of_month, month_of_year, day_of_week = text.split()
    cron, _ = CrontabSchedule.objects.get_or_create(
        minute=minute,
        hour=hour,
        day_of_month=day_of_month,
        month_of_year=month_of_year,
        day_of_week=day_of_week,
        timezone=zone,
    )
    schedule.crontab, schedule.interval = cron, None
    schedule.save()


def set_values(
    schedule: PeriodicTask, given: Mapping[str, Any], more: Mapping[str, Any] | None = None
) -> None:
    """Set the values of a schedule's form, and `more` arguments of its task."""
    values = {**arguments(schedule), **(more or {}), "catch_up": given["catch_up"]}
    # People who can't choose channels leave them unchanged.
    values["channels"] = given.get("channels", channels_of(schedule))
    schedule.kwargs = json.dumps(values)
    schedule.enabled = given["enabled"]
    if given["kind"] == "interval":
        set_interval(schedule, given["every"], given["period"])
    else:
        set_cron(schedule, given["cron"], given["timezone"])
