"""Adds the description to older results, all of which came from the only report of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import migrations

if TYPE_CHECKING:
    from django.apps.registry import Apps
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor

DESCRIPTION: dict[str, Any] = {
    "name": "traffic",
    "title": "Traffic by topic and minute",
    "question": "How many messages and how many bytes did each topic store in each minute?",
    "parameters": [
        {
            "name": "hours",
            "type": "integer",
            "label": "Time range",
            "choices": [
                {"value": 1, "label": "Last hour"},
                {"value": 6, "label": "Last 6 hours"},
                {"value": 24, "label": "Last 24 hours"},
                {"value": 168, "label": "Last 7 days"},
                {"value": 720, "label": "Last 30 days"},
                {"value": None, "label": "Everything in the log"},
            ],
        },
        {"name": "topic", "type": "topic", "label": "Topic"},
    ],
    "columns": [
        {"name": "topic", "type": "string", "label": "Topic"},
        {"name": "minute", "type": "timestamp", "label": "Minute (UTC)"},
        {"name": "messages", "type": "bigint", "label": "Messages", "unit": "messages"},
        {"name": "bytes", "type": "bigint", "label": "Bytes", "unit": "bytes"},
    ],
    "totals": [
        {"name": "messages", "label": "Messages", "unit": "messages", "note": "stored in this time"},
        {"name": "bytes", "label": "Bytes", "unit": "bytes", "note": "of records in the log"},
        {"name": "topics", "label": "Topics", "note": "with at least one message"},
        {"name": "rows", "label": "Rows", "note": "one for each topic and minute"},
    ],
    "chart": {
        "label": "Messages by topic",
        "time": "minute",
        "value": "messages",
        "series": "topic",
        "step_seconds": 60,
    },
    "breakdown": {"label": "By topic", "by": "topic", "sums": ["messages", "bytes"]},
}
OTHER_TOPICS = "other topics"


def described(result: dict[str, Any], row_count: int) -> dict[str, Any]:
    """Convert a result to the form with a description."""
    topics, chart = result.pop("topics"), result.pop("chart")
    count = result.pop("topicCount")
    totals = {"messages": result.pop("messages", None), "bytes": result.pop("bytes", None)}
    return {
        **result,
        "report": DESCRIPTION,
        "totals": {**totals, "topics": str(count), "rows": str(row_count)},
        "breakdown": {
            "rows": [{"by": row["topic"], "sums": [row["messages"], row["bytes"]]} for row in topics],
            "count": count,
        },
        "chart": {
            "stepSeconds": 60 * chart["stepMinutes"],
            "times": chart["times"],
            "series": [
                {
                    "label": None if each["label"] == OTHER_TOPICS else each["label"],
                    "values": each["counts"],
                }
                for each in chart["series"]
            ],
        },
    }


def describe(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    runs = apps.get_model("reports", "ReportRun")
    for run in runs.objects.exclude(result=None).iterator():
        if run.result is not None and "topicCount" in run.result:
            run.result = described(run.result, run.result_rows)
            run.save(update_fields=["result"])


class Migration(migrations.Migration):
    dependencies = [("reports", "0002_default_schedule")]
    operations = [migrations.RunPython(describe, migrations.RunPython.noop)]
