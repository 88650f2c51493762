"""Adds the default schedule: the traffic of the last day, every hour, switched on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from django.db import migrations

if TYPE_CHECKING:
    from django.apps.registry import Apps
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor

NAME = "Traffic of the last 24 hours"
TASK = "console.reports.run_scheduled_report"


def make(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    crontabs = apps.get_model("django_celery_beat", "CrontabSchedule")
    tasks = apps.get_model("django_celery_beat", "PeriodicTask")
    hourly, _ = crontabs.objects.get_or_create(
        minute="0",
        hour="*",
        day_of_month="*",
        month_of_year="*",
        day_of_week="*",
        timezone="UTC",
    )
    tasks.objects.get_or_create(
        name=NAME,
        defaults={
            "task": TASK,
            "crontab": hourly,
            "kwargs": json.dumps({"report": "traffic", "parameters": {"hours": 24}}),
            "expire_seconds": 3600,
            "enabled": True,
        },
    )


def unmake(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name=NAME).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("reports", "0001_initial"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]
    operations = [migrations.RunPython(make, unmake)]
