"""Runs say how much memory their processes had."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the column; runs from before have 0, which is not shown."""

    dependencies = [("reports", "0003_results_describe_themselves")]

    operations = [
        migrations.AddField(
            model_name="reportrun",
            name="memory_bytes",
            field=models.BigIntegerField(default=0),
        ),
    ]
