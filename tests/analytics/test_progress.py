from __future__ import annotations

import contextlib
import io
import json
import os

from analytics.progress import ProgressLines


def test_each_event_is_one_json_line() -> None:
    stream = io.StringIO()
    lines = ProgressLines(stream)

    lines.progress("reading", 1, 4, rows=10, bytes_=2**40)
    lines.done(rows=3, totals={"messages": str(2**60)}, seconds=1.23456)
    lines.failed("Because\nof 订单.")

    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {
            "event": "progress",
            "stage": "reading",
            "done": 1,
            "total": 4,
            "rows": 10,
            "bytes": 2**40,
        },
        {
            "event": "done",
            "rows": 3,
            "totals": {"messages": str(2**60)},
            "seconds": 1.235,
        },
        {"event": "failed", "message": "Because\nof 订单."},
    ]


def test_unchanged_progress_is_not_repeated() -> None:
    stream = io.StringIO()
    lines = ProgressLines(stream)

    for done in (0, 0, 1, 1, 0):
        lines.progress("reading", done, 2)

    assert [json.loads(line)["done"] for line in stream.getvalue().splitlines()] == [0, 1, 0]


def test_a_reader_that_left_does_not_end_the_run() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")

    ProgressLines(stream).progress("reading", 0, 1)

    with contextlib.suppress(BrokenPipeError):
        stream.close()
