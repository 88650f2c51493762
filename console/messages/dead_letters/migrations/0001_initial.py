"""Replays and discards of dead letters."""
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Run',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('group', models.CharField(db_index=True, max_length=255)),
                ('action', models.CharField(choices=[('replay', 'Replay'), ('discard', 'Discard')], max_length=10)),
                ('target', models.CharField(blank=True, choices=[('retry', "The group's retry topic: only this group receives them"), ('origin', "Their original topics: every group that reads them receives them")], max_length=10)),
                ('rate', models.PositiveIntegerField(default=0)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('query', models.TextField(blank=True)),
                ('total', models.PositiveIntegerField()),
                ('state', models.CharField(choices=[('running', 'Running'), ('done', 'Done'), ('stopped', 'Stopped')], default='running', max_length=10)),
                ('by', models.CharField(max_length=150)),
                ('created_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('heartbeat_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('finished_at', models.DateTimeField(null=True)),
                ('cancel_requested', models.BooleanField(default=False)),
                ('failure', models.CharField(blank=True, max_length=1000)),
                ('user', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='Item',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('group', models.CharField(max_length=255)),
                ('broker_name', models.CharField(max_length=128)),
                ('queue_id', models.IntegerField()),
                ('queue_offset', models.BigIntegerField()),
                ('commit_log_offset', models.BigIntegerField()),
                ('outcome', models.CharField(choices=[('waiting', "waiting"), ('sending', "sending"), ('sent', 'sent'), ('unknown', 'may have been sent'), ('failed', "rejected"), ('gone', "expired before replay"), ('discarded', 'discarded')], default='waiting', max_length=10)),
                ('note', models.CharField(blank=True, max_length=1000)),
                ('at', models.DateTimeField(null=True)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='items', to='dead_letters.run')),
            ],
            options={
                'ordering': ['pk'],
                'indexes': [models.Index(fields=['group', 'broker_name', 'queue_id', 'queue_offset'], name='dead_letter_group_ecccc0_idx')],
            },
        ),
    ]
