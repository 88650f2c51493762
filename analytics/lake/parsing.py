"""Parses JSON bodies into the files of silver, in this process or in Spark's workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from analytics.lake.files import FileWriter
from analytics.lake.rewriting import rows_of
from analytics.lake.silver_tables import ABOUT_MESSAGE
from analytics.store.bodies import decompressed
from broker_core.message.names import ORIGIN_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.lake.files import WrittenFile
    from analytics.lake.place import LakePlace
    from analytics.lake.rewriting import LakeFile
    from analytics.lake.silver_tables import SilverTopic

INFLATED = "the body can't be decompressed"
_READ = (
    *(field.name for field in ABOUT_MESSAGE if field.name != "origin_topic"),
    *("sys_flag", "properties", "body"),
)


@dataclass(frozen=True, slots=True)
class ParseTask:
    """Which rows to read of a topic's messages, for which of its tables."""

    place: LakePlace
    topic: SilverTopic
    wanted: frozenset[str]


def write_parsed(task: ParseTask, files: Sequence[LakeFile]) -> dict[str, list[WrittenFile]]:
    """Write the messages of some bronze files to unpublished files, by table name.

    Runs in any process, including Spark workers.
    """
    accepted, rejected = task.topic.tables
    with FileWriter(task.place, accepted) as fitting, FileWriter(task.place, rejected) as others:
        for file in files:
            for batch in rows_of(task.place, file, _READ):
                wanted = pc.and_(
                    pc.equal(batch.column("topic"), task.topic.topic),
                    pc.is_valid(batch.column("body")),
                )
                rows = batch.filter(wanted)
                if not rows.num_rows:
                    continue
                fit, misfit = _parsed(task.topic, rows)
                if accepted.name in task.wanted:
                    fitting.write(fit)
                if rejected.name in task.wanted:
                    others.write(misfit)
    return {accepted.name: fitting.written, rejected.name: others.written}


def _parsed(topic: SilverTopic, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows of both tables."""
    bodies, _failed = decompressed(rows.column("body"), rows.column("sys_flag").to_pylist())
    columns, reasons = topic.columns.read([each or b"" for each in bodies.to_pylist()])
    why = pc.if_else(pc.is_null(bodies), INFLATED, pa.array(reasons, pa.string()))
    about = {name: rows.column(name) for name in rows.schema.names}
    about["origin_topic"] = _origins(rows)
    shared = [about[field.name] for field in ABOUT_MESSAGE]
    fit = pa.RecordBatch.from_arrays([*shared, *columns], schema=topic.accepted.schema)
    misfit = pa.RecordBatch.from_arrays([*shared, why], schema=topic.rejected.schema)
    return fit.filter(pc.is_null(why)), misfit.filter(pc.is_valid(why))


def _origins(rows: pa.RecordBatch) -> pa.Array:
    """Return each message's original topic, which is null for most messages."""
    properties, topics = rows.column("properties"), rows.column("topic")
    found = pa.nulls(rows.num_rows, pa.string())
    for name in ORIGIN_PROPERTIES:
        named = pc.map_lookup(properties, pa.scalar(name), "first")
        is_other = pc.fill_null(pc.not_equal(named, topics), False)
        found = pc.coalesce(found, pc.if_else(is_other, named, pa.scalar(None, pa.string())))
    return found
