"""`python -m analytics.query`: runs one query over the lake, and ends.

Standard input is a line of JSON, {"sql", "zone", "rows_max", "bytes_max", "seconds_max", "topics",
"masks"}, and stays open: the process ends with whoever started it. Topics are those that the asker
may read, null for all; masks are the rules of what is hidden from everybody ({"topics", "kind",
"what"}, analytics.lake.masks). Standard output is a line of JSON for each event:

    {"event": "progress", "percent": 41.5, "rows": 0}
    {"event": "done", "columns": [...], "rows": 2, "bytes": 31, "cut": ""}
    {"event": "failed", "message": "..."}

Rows go to two open files of the one who asks, as JSON lines and as Parquet. `--describe` says which
tables and columns there are instead. Exit codes: 0 done, 1 failed, 2 bad arguments.
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
from analytics.query.checking import OUT_OF_MEMORY, QueryError
from analytics.query.engine import Engine, write
from analytics.query.views import views_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EXIT_FAILED = 1
PROGRESS_SECONDS = 0.25
NICENESS = 10
# DuckDB keeps to its own limit; this one is for what is around it: Arrow, and an error in either.
MEMORY_BYTES_MAX = 1 << 30
FILES_MAX = 1024
# What a Parquet file has besides its rows.
FILE_BYTES_MORE = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
DATA_PAGES_FIELD = 5


class Events:
    """Writes events, from two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def say(self, **event: Any) -> None:
        with self._lock:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()


def limit(bytes_max: int, seconds_max: int) -> None:
    """Let the system hold what a query may use, on top of what stands before it begins."""
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
    """Read a line without a buffer: another thread waits for what follows it."""
    line = bytearray()
    while (read := os.read(descriptor, 1)) not in {b"", b"\n"}:
        line += read
    return bytes(line)


def follow_parent() -> None:
    """End this process when whoever started it closes its input, or ends."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(EXIT_FAILED)


@contextmanager
def progress_written(engine: Engine, events: Events) -> Iterator[None]:
    """Write how far the query is until the block ends: how it ended is the last event."""
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
    """Run one query and write how it went.

    Raises:
        QueryError: it isn't allowed, or failed.
        LakeError: the lake can't be read.
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
    """Return the tables with their columns, as DuckDB knows them."""
    return {
        "tables": [
            {
                "name": view.name,
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
        threading.Thread(target=follow_parent, daemon=True).start()
        # Somebody waits for the answer, so this is no guest as reports are; the broker comes first.
        os.nice(NICENESS)
        query(place, request, (given.rows_fd, given.parquet_fd))
    except ReportError as error:
        return failed(str(error))
    except MemoryError:
        return failed(OUT_OF_MEMORY)
    except OSError as error:  # such as a result that is larger than its files may be
        return failed(f"Couldn't write the result: {error.strerror}. Select fewer rows or columns.")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    # Nothing is left to do, and the interpreter's own end waits for threads that read and run.
    os._exit(code)
