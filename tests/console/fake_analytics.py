"""A program with the interface of `python -m analytics`, told by the topic what to do."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path


def say(event: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("report")
    for name in ("--store", "--out", "--from", "--to", "--topic"):
        parser.add_argument(name)
    arguments = parser.parse_args()
    out, topic = Path(arguments.out), arguments.topic or "orders"
    sys.stderr.write("Spark says hello\n")
    say({"event": "progress", "stage": "reading", "done": 1, "total": 4, "rows": 10, "bytes": 99})
    if topic == "fails":
        say({"event": "failed", "message": "The store directory is empty."})
        return 1
    if topic == "crashes":
        sys.stderr.write("java.lang.OutOfMemoryError\n")
        return 3
    if topic == "hangs":
        (out / "pid").write_text(str(os.getpid()))
        signal.pause()
    if topic == "chats":
        for number in range(5_000):
            sys.stderr.write(f"line {number}\n")
        sys.stdout.write("not json\n")
    rows = 25_000 if topic == "many" else 2
    say({"event": "progress", "stage": "writing", "done": 4, "total": 4, "rows": 20, "bytes": 200})
    (out / "result.json").write_text(
        json.dumps(
            {
                "report": "traffic",
                "schema": [],
                "rows": [
                    {
                        "topic": f"{topic}-{number % 2}",
                        "minute": f"2026-11-21T{number // 60 % 24:02d}:{number % 60:02d}:00Z",
                        "messages": "123",
                        "bytes": "456",
                    }
                    for number in range(rows)
                ],
                "messages": str(123 * rows),
                "bytes": str(456 * rows),
                "from": "2026-11-21T00:00:00Z",
                "to": "2026-11-21T00:02:00Z",
            }
            if topic != "broken"
            else {"rows": [{"topic": "x"}]}
        )
    )
    say({"event": "done", "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
