"""Iceberg next to Delta: the same Parquet files, registered in tables of an Iceberg catalogue.

Delta is committed first and is authoritative. `follow` compares the files of each Delta table with
its Iceberg table and commits the difference as one snapshot, whose summary names the version of
Delta and, for bronze.messages, the offset of each broker's log:

    trebuchet.delta-version = 41      trebuchet.log-offset.broker-a = 19971254

So Iceberg follows every change of Delta: batches, merging, retention, `forget`, `rebuild`. If the
process is killed between the two commits, the next call catches up. PyIceberg is imported only if
the lake has Iceberg.

Metadata is under `_iceberg` of the lake, outside Delta's folders, whose maintenance would delete it
as unreferenced.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from analytics.errors import LakeError
from analytics.lake.changes import actions_of
from analytics.lake.columns import comment_of
from analytics.lake.rewriting import brokers_in, stored_files_of
from analytics.lake.silver_tables import tables_in
from analytics.lake.tables import DAY, MESSAGES
from analytics.lake.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltalake import DeltaTable
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from analytics.lake.place import LakePlace
    from analytics.lake.rewriting import StoredFile
    from analytics.lake.tables import LakeTable

logger = logging.getLogger(__name__)

FOLDER = LOCK = "_iceberg"
CATALOGUE = "trebuchet"
CATALOGUE_FILE = "iceberg.db"
VERSION_PROPERTY = "trebuchet.delta-version"
OFFSET_PROPERTY = "trebuchet.log-offset."
NAME_MAPPING = "schema.name-mapping.default"
# Each commit writes the list of snapshots; files of older snapshots are kept for a day.
SNAPSHOT_HOURS = 1
ORPHAN_HOURS = 24
_EPOCH = date(1970, 1, 1)


def follow(place: LakePlace) -> int:
    """Bring the Iceberg tables to the newest versions of Delta; return how many commits it took.

    Raises:
        LakeBusyError: another process works on the lake.
        LakeError: the catalogue or a table can't be used. Delta is not affected.
    """
    if not place.has_iceberg:
        return 0
    with place.locked(LOCK), _failing(place):
        catalogue = _catalogue(place)
        tables = [table for table in tables_in(place) if table.exists(place)]
        return sum(_follow(place, catalogue, table) for table in tables)


def tidy(place: LakePlace, hours: float = SNAPSHOT_HOURS) -> None:
    """Follow Delta, expire old snapshots, and delete unreferenced metadata.

    Raises:
        LakeBusyError, LakeError: as `follow`.
    """
    follow(place)
    if not place.has_iceberg:
        return
    with place.locked(LOCK), _failing(place):
        catalogue = _catalogue(place)
        for table in tables_in(place):
            if catalogue.table_exists(_identifier(table)):
                _expire(place, catalogue.load_table(_identifier(table)), table, hours)


@contextmanager
def _failing(place: LakePlace) -> Iterator[None]:
    """Raise LakeError for any exception of PyIceberg, which has no common base class."""
    try:
        yield
    except LakeError:
        raise
    except ImportError as error:
        raise LakeError(
            "Iceberg needs the package pyiceberg, which requirements.lock names: install it, or "
            "take iceberg out of TREBUCHET_LAKE_FORMATS."
        ) from error
    except Exception as error:
        logger.exception("iceberg update failed lake=%s", place.uri)
        line = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise LakeError(
            f"The Iceberg tables of the lake {place.uri} couldn't be updated from Delta: {line}. "
            "The next job tries again; Delta isn't affected."
        ) from error


def _catalogue(place: LakePlace) -> Catalog:
    """Return the catalogue in PyIceberg's settings, or a SQLite catalogue next to the lake."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    if Config().get_catalog_config(CATALOGUE):
        return load_catalog(CATALOGUE, **_io_properties(place))
    place.state.mkdir(parents=True, exist_ok=True)
    return load_catalog(
        CATALOGUE,
        type="sql",
        uri=f"sqlite:///{place.state / CATALOGUE_FILE}",
        warehouse=f"{place.uri}/{FOLDER}",
        **_io_properties(place),
    )


def _io_properties(place: LakePlace) -> dict[str, str]:
    """Return PyIceberg's properties for reaching the files."""
    names = {
        "s3.endpoint": "AWS_ENDPOINT_URL",
        "s3.region": "AWS_REGION",
        "s3.access-key-id": "AWS_ACCESS_KEY_ID",
        "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
        "s3.session-token": "AWS_SESSION_TOKEN",
    }
    return {name: place.access[known] for name, known in names.items() if known in place.access}


def _identifier(table: LakeTable) -> tuple[str, ...]:
    return tuple(table.name.split("."))


def _follow(place: LakePlace, catalogue: Catalog, table: LakeTable) -> int:
    delta = table.existing(place)
    registered = _opened(place, catalogue, table)
    snapshot = registered.current_snapshot()
    said = snapshot.summary if snapshot is not None else None
    known = None if said is None else said.additional_properties.get(VERSION_PROPERTY)
    if known == str(delta.version()):
        return 0
    wanted = {_path_in(place, table, file.path): file for file in stored_files_of(delta)}
    added = _added_since(place, table, known, delta)
    there: dict[str, DataFile] = {}
    if added is None:
        there = {task.file.file_path: task.file for task in registered.scan().plan_files()}
        added = wanted.keys() - there.keys()
    removed = [file for path, file in there.items() if path not in wanted]
    with registered.transaction() as change:
        update = change.update_snapshot(snapshot_properties=_summary(place, table, delta))
        with update.overwrite() if removed else update.merge_append() as commit:
            for path in sorted(added):
                commit.append_data_file(_data_file(place, registered, wanted[path], path))
            for file in removed:
                commit.delete_data_file(file)
    return 1


def _added_since(
    place: LakePlace, table: LakeTable, known: str | None, delta: DeltaTable
) -> set[str] | None:
    """Return the files that commits added, or None if they removed files or aren't readable."""
    if known is None or int(known) > delta.version():
        return None
    added: set[str] = set()
    for version in range(int(known) + 1, delta.version() + 1):
        actions = actions_of(place, table, version)
        if actions is None or any("remove" in one for one in actions):
            return None
        added |= {_path_in(place, table, one["add"]["path"]) for one in actions if "add" in one}
    return added


def _summary(place: LakePlace, table: LakeTable, delta: DeltaTable) -> dict[str, str]:
    said = {VERSION_PROPERTY: str(delta.version())}
    if table is MESSAGES:
        for broker in sorted(brokers_in(delta)):
            watermark = Watermark.of(delta, broker)
            if watermark is not None:
                said[OFFSET_PROPERTY + broker] = str(watermark.offset)
    return said


def _opened(place: LakePlace, catalogue: Catalog, table: LakeTable) -> Table:
    """Return the Iceberg table with Delta's columns, recreated if its columns differ."""
    from pyiceberg.exceptions import NoSuchTableError, ValidationError

    try:
        found = catalogue.load_table(_identifier(table))
    except NoSuchTableError:
        return _created(place, catalogue, table)
    except (FileNotFoundError, ValidationError) as error:
        # A power cut can tear metadata, which isn't synced; Delta still has everything.
        logger.warning(
            "iceberg table unreadable, recreating it table=%s error=%s", table.name, error
        )
        catalogue.drop_table(_identifier(table))
        return _created(place, catalogue, table)
    there = {field.name: _shape(field.type) for field in found.schema().as_arrow()}
    wanted = {field.name: _shape(field.type) for field in table.schema}
    if there == wanted:
        return found
    if any(wanted.get(name) != kind for name, kind in there.items()):
        catalogue.drop_table(_identifier(table))
        return _created(place, catalogue, table)
    with found.transaction() as change:
        with change.update_schema() as update:
            update.union_by_name(_iceberg_arrow(table))
        mapping = change.table_metadata.schema().name_mapping.model_dump_json()
        change.set_properties({NAME_MAPPING: mapping})
    return catalogue.load_table(_identifier(table))


def _created(place: LakePlace, catalogue: Catalog, table: LakeTable) -> Table:
    """Make an Iceberg table without rows."""
    identifier = _identifier(table)
    catalogue.create_namespace_if_not_exists(identifier[:-1])
    properties = {
        "comment": table.description,
        "commit.manifest-merge.enabled": "true",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "10",
        # Not for keys or bodies: metadata would reveal erased values.
        "write.metadata.metrics.default": "none",
        **{f"write.metadata.metrics.column.{name}": "full" for name in table.statistics},
    }
    # A REST catalogue chooses the location itself.
    location = f"{place.uri}/{FOLDER}/{'/'.join(identifier)}"
    with catalogue.create_table_transaction(
        identifier, _iceberg_arrow(table), location=location, properties=properties
    ) as change:
        if table.partition_by:
            with change.update_spec() as spec:
                spec.add_identity(DAY)
        mapping = change.table_metadata.schema().name_mapping.model_dump_json()
        change.set_properties({NAME_MAPPING: mapping})
    return catalogue.load_table(identifier)


def _iceberg_arrow(table: LakeTable) -> pa.Schema:
    """Return the columns with their comments, as PyIceberg reads them from Arrow."""
    return pa.schema([field.with_metadata({"doc": comment_of(field)}) for field in table.schema])


def _shape(kind: pa.DataType) -> str:
    """Return a type as text that is stable when PyIceberg converts it and reads it back."""
    if pa.types.is_struct(kind):
        return f"{{{', '.join(f'{each.name}: {_shape(each.type)}' for each in kind)}}}"
    if pa.types.is_map(kind):
        return f"<{_shape(kind.key_type)}, {_shape(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"[{_shape(kind.value_type)}]"
    return str(kind).removeprefix("large_")


def _path_in(place: LakePlace, table: LakeTable, path: str) -> str:
    return f"{place.table(table.name)}/{path}"


def _data_file(place: LakePlace, registered: Table, file: StoredFile, path: str) -> DataFile:
    """Describe a file for Iceberg from its footer; `day` is only in the folder's name."""
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    table = registered.metadata
    location = path.removeprefix("s3://")
    statistics = data_file_statistics_from_parquet_metadata(
        pq.read_metadata(location, filesystem=place.filesystem()),
        compute_statistics_plan(table.schema(), table.properties),
        parquet_path_to_id_mapping(table.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record() if file.day is None else Record((file.day - _EPOCH).days),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=table.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _expire(place: LakePlace, registered: Table, table: LakeTable, hours: float) -> None:
    """Expire old snapshots, and delete metadata unreferenced by any table version for a day."""
    limit = datetime.now(UTC) - timedelta(hours=hours)
    registered.maintenance.expire_snapshots().older_than(limit).commit()
    registered.refresh()
    metadata = registered.metadata
    named = {registered.metadata_location, *(one.metadata_file for one in metadata.metadata_log)}
    for snapshot in metadata.snapshots:
        named.add(snapshot.manifest_list)
        named |= {one.manifest_path for one in snapshot.manifests(registered.io)}
    filesystem = place.filesystem()
    folder = f"{place.uri}/{FOLDER}/{table.name.replace('.', '/')}/metadata".removeprefix("s3://")
    oldest = datetime.now(UTC) - timedelta(hours=ORPHAN_HOURS)
    kept = {each.removeprefix("s3://") for each in named}
    for info in filesystem.get_file_info(pyarrow.fs.FileSelector(folder, allow_not_found=True)):
        if info.path not in kept and info.mtime < oldest:
            filesystem.delete_file(info.path)
