"""The JSON files of brokers, as they are, and their versions."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Schema

from console.api.operations import Need, operation
from console.api.schemas import LIMIT, Cursor, Limit, Listed, Number, Text, newest
from console.files.models import FileVersion
from console.files.views import file_of, known, masters, row_of
from console.gateway.access import gateway
from console.gateway.files import ConfigFile
from console.ui.missing import MissingError


class FileOut(Schema):
    """A file of a broker; `count` None: it cannot be read, for the problem."""

    broker_name: str
    file: ConfigFile
    count: int | None
    problem: str
    is_editable: bool


class FileVersionOut(Schema):
    """What a file said at a time."""

    id: int
    at_ms: int
    source: str
    by: str
    reason: str
    entry: int | None
    count: int


class FileVersionDetailOut(FileVersionOut):
    """A version with its entries."""

    entries: dict[str, Any]


@operation(
    "GET",
    "/files",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("files:index",),
    response=list[FileOut],
)
def files(request: HttpRequest) -> list[dict[str, Any]]:
    """List the configuration files of all masters."""
    found = []
    for broker_name in masters():
        for file in ConfigFile:
            row = row_of(broker_name, file)
            found.append(
                {
                    "broker_name": broker_name,
                    "file": file,
                    "count": row.count,
                    "problem": row.problem,
                    "is_editable": row.is_editable,
                }
            )
    return found


@operation(
    "GET",
    "/files/versions/{version}",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("files:history",),
    response=FileVersionDetailOut,
)
def file_version(request: HttpRequest, version: Number) -> Any:
    """Show what a version of a file says."""
    found = FileVersion.objects.filter(pk=version).first()
    if found is None:
        raise MissingError(_("There is no such version (any more)."))
    return found


@operation(
    "GET",
    "/files/{broker_name}/{file}",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("files:show", "files:download"),
    response=dict[str, Any],
)
def file(request: HttpRequest, broker_name: Text, file: Text) -> dict[str, Any]:
    """Show a file as the broker writes it."""
    kind = known(broker_name, file)
    document: dict[str, Any] | None = gateway().files.read(kind, [broker_name])[broker_name]
    if document is None:
        raise MissingError(_("This broker does not tell the file."))
    return document


@operation(
    "GET",
    "/files/{broker_name}/{file}/versions",
    area="brokers",
    need=Need.ADMINISTER,
    pages=("files:history",),
    response=Listed[FileVersionOut],
)
def file_versions(
    request: HttpRequest, broker_name: Text, file: Text, cursor: Cursor = "", limit: Limit = LIMIT
) -> dict[str, Any]:
    """List the versions of a file, newest first."""
    versions = FileVersion.objects.filter(broker_name=broker_name, file=file_of(file))
    page, following = newest(versions.defer("packed"), cursor, limit)
    return {"items": page, "next": following}
