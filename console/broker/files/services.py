"""Configuration files: find, read and compare them, for the pages and the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _

from console.broker.files import planning
from console.broker.files.changing import plan_of, read, subject_in
from console.broker.files.entries import (
    Entries,
    FileProblemsError,
    Problem,
    entries_of_text,
    unknown_keys,
)
from console.broker.files.models import FileVersion, keep
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.gateway.files import ConfigFile
from console.lib.missing import MissingError
from console.people.audit.models import Entry

if TYPE_CHECKING:
    from console.broker.configs.plan import Plan

# The other files change all the time, so storing a version per view would be useless.
VERSIONED_FILES = (ConfigFile.TOPICS, ConfigFile.GROUPS, ConfigFile.FILTERS)


@dataclass(frozen=True, slots=True)
class FileRow:
    """A row of the list: a file of a broker."""

    file: ConfigFile
    count: int | None
    problem: str
    version: FileVersion | None


def masters() -> list[str]:
    return sorted(node.broker_name for node in gateway().cluster.registered().masters)


def file_of(text: str) -> ConfigFile:
    try:
        return ConfigFile(text)
    except ValueError:
        raise MissingError(_("Brokers have no configuration file with this name.")) from None


def known(broker_name: str, file: str) -> ConfigFile:
    """Return the file in the path, or raise the 404 page."""
    found = file_of(file)
    if broker_name not in masters():
        raise MissingError(_("No master named %s is registered.") % broker_name)
    return found


def row_of(broker_name: str, file: ConfigFile) -> FileRow:
    try:
        entries = read(broker_name, file)
    except GatewayError as error:
        return FileRow(file, None, error.what, newest(broker_name, file))
    if file in VERSIONED_FILES:
        keep(broker_name, file, entries)
    return FileRow(file, len(entries), "", newest(broker_name, file))


def newest(broker_name: str, file: ConfigFile) -> FileVersion | None:
    return FileVersion.objects.filter(broker_name=broker_name, file=file).defer("packed").first()


def checked(kind: ConfigFile, text: str) -> tuple[list[Problem], Entries]:
    """Return a text's problems, or its entries."""
    try:
        entries = entries_of_text(kind, text)
    except FileProblemsError as error:
        return list(error.problems), {}
    unknown = unknown_keys(kind, text)
    if unknown:
        sentence = _("These keys can't be changed by a request, so they can't be saved: %s.")
        return [Problem(sentence % ", ".join(unknown))], {}
    return [], entries


def difference(before: Entries, after: Entries) -> dict[str, Any]:
    """Return the entries that differ, with their values after the change."""
    names = sorted({*before, *after})
    return {name: after.get(name) for name in names if before.get(name) != after.get(name)}


def applied_in(entry: int) -> tuple[Entry, tuple[str, ConfigFile]]:
    """Return the audit log entry of an applied plan, with its broker and file."""
    done = get_object_or_404(Entry, pk=entry, action=planning.ACTION, outcome=Entry.Outcome.DONE)
    try:
        return done, subject_in(done.subject)
    except ValueError:
        raise Http404 from None


def undoing(entry: int) -> Plan:
    """Return the plan that undoes an entry."""
    done, (broker_name, kind) = applied_in(entry)
    now = read(broker_name, kind)
    return plan_of(broker_name, kind, done.after or {}, now, done.before or {})


def reported_document(broker_name: str, kind: ConfigFile) -> dict[str, Any]:
    """Return a file as the broker writes it.

    Raises:
        MissingError: the broker doesn't report it.
    """
    document: dict[str, Any] | None = gateway().files.read(kind, [broker_name])[broker_name]
    if document is None:
        raise MissingError(_("This broker doesn't report this file."))
    return document


def restoring(version: FileVersion, kind: ConfigFile) -> Plan:
    """Return the plan that restores a version."""
    now = read(version.broker_name, kind)
    return plan_of(version.broker_name, kind, now, now, difference(now, version.entries))
