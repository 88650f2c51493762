"""Stored versions of brokers' configuration files, with author and reason."""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import TYPE_CHECKING

from django.db import models
from django.utils.translation import gettext_lazy as _

from console.gateway.files import ConfigFile
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from console.broker.files.entries import Entries

ACTOR_CHARACTERS_MAX = 150
REASON_CHARACTERS_MAX = 500
VERSIONS_KEPT = 200
"""Per file and broker."""


class Source(models.TextChoices):
    """How the console obtained a version."""

    SEEN = "seen", _("Observed")
    APPLIED = "applied", _("Applied here")


class FileVersion(models.Model):
    """The entries of a file at a time; `entry` is the audit log entry of the change that applied
    it.
    """

    broker_name = models.CharField(max_length=255)
    file = models.CharField(
        max_length=40, choices=[(each.value, each.value) for each in ConfigFile]
    )
    at_ms = models.BigIntegerField()
    source = models.CharField(max_length=10, choices=Source.choices)
    by = models.CharField(max_length=ACTOR_CHARACTERS_MAX, blank=True)
    reason = models.CharField(max_length=REASON_CHARACTERS_MAX, blank=True)
    entry = models.BigIntegerField(null=True)
    digest = models.CharField(max_length=64)
    count = models.PositiveIntegerField()
    packed = models.BinaryField()

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["broker_name", "file", "-id"], name="files_of_broker")]

    def __str__(self) -> str:
        return f"{self.broker_name} {self.file} {self.pk}"

    @property
    def entries(self) -> Entries:
        """The entries of the file."""
        found: Entries = json.loads(zlib.decompress(self.packed))
        return found

    @property
    def kind(self) -> ConfigFile:
        return ConfigFile(self.file)


def keep(
    broker_name: str,
    file: ConfigFile,
    entries: Entries,
    *,
    source: Source = Source.SEEN,
    by: str = "",
    reason: str = "",
    entry: int | None = None,
) -> FileVersion:
    """Store and return a version, or return the newest one if it is equal and not newly applied."""
    text = json.dumps(entries, sort_keys=True).encode()
    digest = hashlib.sha256(text).hexdigest()
    of_file = FileVersion.objects.filter(broker_name=broker_name, file=file)
    newest = of_file.first()
    if newest is not None and newest.digest == digest and source == Source.SEEN:
        return newest
    made = FileVersion.objects.create(
        broker_name=broker_name,
        file=file,
        at_ms=now_ms(),
        source=source,
        by=by[:ACTOR_CHARACTERS_MAX],
        reason=reason[:REASON_CHARACTERS_MAX],
        entry=entry,
        digest=digest,
        count=len(entries),
        packed=zlib.compress(text),
    )
    for oldest_kept in of_file.values_list("pk", flat=True)[VERSIONS_KEPT - 1 : VERSIONS_KEPT]:
        of_file.filter(pk__lt=oldest_kept).delete()
    return made
