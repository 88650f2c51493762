"""`python -m analytics.query`: run one query over the lake.

Standard input is a line of JSON, {"sql", "zone", "rows_max", "bytes_max", "seconds_max", "topics",
"masks"}, and stays open: the process exits when the parent closes it. `topics` lists the topics
that the person may read, null for all topics; `masks` are the masking rules for all users
({"topics", "kind", "what"}, analytics.lake.masks). Standard output is a line of JSON for each
event:

    {"event": "progress", "percent": 41.5, "rows": 0}
    {"event": "done", "columns": [...], "rows": 2, "bytes": 31, "cut": ""}
    {"event": "failed", "message": "..."}

Rows are written to two files that the parent opened, as JSON lines and as Parquet. `--describe`
prints the tables and columns instead. Exit codes: 0 done, 1 failed, 2 bad arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analytics.errors import ReportError
from analytics.lake.masks import Mask
from analytics.lake.place import LakePlace
from analytics.low_priority import lower_session
from analytics.query.engine import Engine, write
from analytics.query.validation import OUT_OF_MEMORY, QueryError
from analytics.query.views import views_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EXIT_FAILED = 1
PROGRESS_SECONDS = 0.25
NICENESS = 10
# DuckDB enforces its own limit; this one covers Arrow, and bugs in either.
MEMORY_BYTES_MAX = 1 << 30
FILES_MAX = 1024
# Size of a Parquet file besides its rows.
FILE_BYTES_MORE = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
DATA_PAGES_FIELD = 5


class Events:
    """Writes events. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def say(self, **event: Any) -> None:
        with self._lock:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()


def limit(bytes_max: int, seconds_max: int) -> None:
    """Set system limits on a query's resources, on top of current use."""
    used = int(Path("/proc/self/statm").read_text().split()[DATA_PAGES_FIELD]) * PAGE_BYTES
    for name, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, seconds_max),
        (resource.RLIMIT_DATA, used + MEMORY_BYTES_MAX),
        (resource.RLIMIT_FSIZE, bytes_max),
        (resource.RLIMIT_NOFILE, FILES_MAX),
    ):
        _soft, hard = resource.getrlimit(name)
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (wanted, wanted))


def read_line(descriptor: int) -> bytes:
    """Read a line without buffering, because another thread reads the rest."""
    line = bytearray()
    while (read := os.read(descriptor, 1)) not in {b"", b"\n"}:
        line += read
    return bytes(line)


def exit_with_parent() -> None:
    """Exit when the parent process closes our input or ends."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(EXIT_FAILED)


@contextmanager
def progress_written(engine: Engine, events: Events) -> Iterator[None]:
    """Write the query's progress until the block ends, before the last event."""
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(PROGRESS_SECONDS):
            events.say(event="progress", percent=round(engine.progress(), 1))

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def query(place: LakePlace, request: dict[str, Any], descriptors: tuple[int, int]) -> None:
    """Run one query and write its result.

    Raises:
        QueryError: the query isn't allowed, or failed.
        LakeError: the lake isn't readable.
    """
    topics = request["topics"]
    try:
        masks = [Mask.of(each) for each in request["masks"]]
    except ValueError as error:
        raise QueryError(f"The query can't run because {error}.") from error
    views = views_of(place, None if topics is None else [str(each) for each in topics], masks)
    engine = Engine(place, views, str(request["zone"]))
    limit(2 * int(request["bytes_max"]) + FILE_BYTES_MORE, 2 * int(request["seconds_max"]))
    rows_descriptor, parquet_descriptor = descriptors
    events = Events()
    with (
        os.fdopen(rows_descriptor, "wb") as rows_file,
        os.fdopen(parquet_descriptor, "wb") as parquet_file,
        progress_written(engine, events),
        engine.reader(str(request["sql"])) as reader,
    ):
        found = write(
            reader,
            rows_file,
            parquet_file,
            (int(request["rows_max"]), int(request["bytes_max"])),
            lambda rows: events.say(event="progress", rows=rows),
        )
    events.say(event="done", **found)


def describe(place: LakePlace) -> dict[str, Any]:
    """Return the tables with their DuckDB columns."""
    return {
        "tables": [
            {
                "name": view.sql_name,
                "description": view.description,
                "has_topic": view.has_topic,
                "columns": [
                    {"name": each.name, "type": each.type, "description": each.description}
                    for each in view.columns
                ],
            }
            for view in (each.lake_view for each in views_of(place))
        ]
    }


def failed(sentence: str) -> int:
    print(json.dumps({"event": "failed", "message": sentence}), flush=True)
    return EXIT_FAILED


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m analytics.query", allow_abbrev=False)
    parser.add_argument("--lake", required=True, metavar="URI")
    parser.add_argument("--state", type=Path, metavar="DIR")
    parser.add_argument("--describe", action="store_true")
    parser.add_argument("--rows-fd", type=int, default=-1)
    parser.add_argument("--parquet-fd", type=int, default=-1)
    given = parser.parse_args(arguments)
    try:
        place = LakePlace.of(given.lake, given.state, os.environ)
        if given.describe:
            print(json.dumps(describe(place)))
            return 0
        request = json.loads(read_line(sys.stdin.fileno()))
        threading.Thread(target=exit_with_parent, daemon=True).start()
        # A person waits for the answer, so it gets more than a report does; the broker comes first.
        os.nice(NICENESS)
        lower_session(NICENESS)
        query(place, request, (given.rows_fd, given.parquet_fd))
    except ReportError as error:
        return failed(str(error))
    except MemoryError:
        return failed(OUT_OF_MEMORY)
    except OSError as error:  # for example, the result exceeds the file size limit
        return failed(f"Couldn't write the result: {error.strerror}. Select fewer rows or columns.")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    # Nothing is left to do, and a normal exit would wait for running threads.
    os._exit(code)
