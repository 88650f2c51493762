"""Queries that people keep, and the permission to ask the lake."""

from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='SavedQuery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=120)),
                ('sql', models.TextField(max_length=20000)),
                ('is_shared', models.BooleanField(default=False)),
                ('changed_at', models.DateTimeField(auto_now=True)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['name', 'id'],
                'permissions': [('query_lake', 'May ask the lake in SQL')],
                'constraints': [models.UniqueConstraint(fields=('owner', 'name'), name='one_query_of_a_name')],
            },
        ),
    ]
