"""Results say which of their values come from messages, as reports describe it since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import migrations

if TYPE_CHECKING:
    from django.apps.registry import Apps
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor

FROM_MESSAGES = {"keys": "key", "duplicates": "value", "origins": "origin"}


def mark(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    runs = apps.get_model("reports", "ReportRun")
    for run in runs.objects.filter(report__in=FROM_MESSAGES).exclude(result=None).iterator():
        described = run.result.get("report") if isinstance(run.result, dict) else None
        if not isinstance(described, dict):
            continue
        for column in described.get("columns", ()):
            if column.get("name") == FROM_MESSAGES[run.report]:
                column["from_messages_of"] = "topic"
        run.save(update_fields=["result"])


class Migration(migrations.Migration):
    dependencies = [("reports", "0004_memory")]
    operations = [migrations.RunPython(mark, migrations.RunPython.noop)]
