"""A program with the interface of `python -m analytics serve`; the topic selects its behaviour.

It describes two reports that the console has no code for: `traffic`, as in the real program, and
`handovers`, with other parameters, columns, totals, another chart and a separate requirement.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

RUN_OPTIONS = (
    "--store",
    "--out",
    "--commit-log",
    "--brokers",
    "--lake",
    "--lake-state",
)

HOURS = {
    "name": "hours",
    "type": "integer",
    "label": "Time range",
    "help": "Counted back from the start of the run.",
    "default": 24,
    "minimum": 1,
    "maximum": 8784,
    "choices": [
        {"value": 6, "label": "Last 6 hours"},
        {"value": 24, "label": "Last 24 hours"},
        {"value": None, "label": "Everything in the log"},
    ],
}
TOPIC = {"name": "topic", "type": "topic", "label": "Topic", "help": "", "maximum": 255}
TRAFFIC: dict[str, Any] = {
    "name": "traffic",
    "title": "Traffic by topic and minute",
    "question": "How many messages did each topic store?",
    "parameters": [HOURS, TOPIC],
    "columns": [
        {"name": "topic", "type": "string", "label": "Topic", "unit": ""},
        {"name": "minute", "type": "timestamp", "label": "Minute (UTC)", "unit": ""},
        {"name": "messages", "type": "bigint", "label": "Messages", "unit": "messages"},
        {"name": "bytes", "type": "bigint", "label": "Bytes", "unit": "bytes"},
    ],
    "sorted_by": ["minute", "topic"],
    "totals": [
        {"name": "messages", "label": "Messages", "how": "sum", "unit": "messages"},
        {"name": "bytes", "label": "Bytes", "how": "sum", "unit": "bytes"},
    ],
    "chart": {
        "label": "Messages by topic",
        "time": "minute",
        "value": "messages",
        "series": "topic",
        "step_seconds": 60,
    },
    "breakdown": {"label": "By topic", "by": "topic", "sums": ["messages", "bytes"]},
    "needs": [],
}
HANDOVERS: dict[str, Any] = {
    "name": "handovers",
    "title": "Handovers of queues",
    "question": "How often did a queue change its consumer?",
    "parameters": [
        {
            "name": "least",
            "type": "integer",
            "label": "At least so many handovers",
            "help": "Queues with fewer are left out.",
            "default": 3,
            "minimum": 2,
            "maximum": 50,
        },
        {"name": "group", "type": "text", "label": "Consumer group", "maximum": 12},
    ],
    "columns": [
        {"name": "hour", "type": "timestamp", "label": "Hour (UTC)", "unit": ""},
        {"name": "consumer_group", "type": "string", "label": "Group", "unit": ""},
        {"name": "handovers", "type": "int", "label": "Handovers", "unit": ""},
    ],
    "sorted_by": ["hour"],
    "totals": [
        {"name": "changes", "label": "All handovers", "how": "sum", "note": "of all queues"},
        {"name": "groups", "label": "Groups affected", "how": "distinct"},
        {"name": "unsaid", "label": "Without a value", "how": "sum"},
    ],
    "chart": {
        "label": "Handovers by group",
        "time": "hour",
        "value": "handovers",
        "series": "consumer_group",
        "step_seconds": 3600,
    },
    "breakdown": {"label": "By group", "by": "consumer_group", "sums": ["handovers"]},
    "needs": [
        {"name": "oracle", "label": "An oracle", "check": [sys.executable, __file__, "oracle"]}
    ],
}
REPORTS = {"traffic": TRAFFIC, "handovers": HANDOVERS}


def say(event: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def oracle() -> int:
    """The requirement of `handovers`: met if the environment says so."""
    if "ORACLE" in os.environ:
        return 0
    say({"sentence": "No oracle answers.", "remedy": "Ask one:", "command": "delphi --ask"})
    return 1


def traffic(topic: str) -> dict[str, Any]:
    rows = 25_000 if topic == "many" else 2
    return {
        "rows": [
            {
                "topic": f"{topic}-{number % 2}",
                "minute": f"2026-11-21T{number // 60 % 24:02d}:{number % 60:02d}:00Z",
                "messages": "123",
                "bytes": "456",
            }
            for number in range(rows)
        ],
        "totals": {"messages": str(123 * rows), "bytes": str(456 * rows)},
    }


def handovers(group: str) -> dict[str, Any]:
    hours = (("07", "billing", "4"), ("09", group or "export", "2048"))
    return {
        "rows": [
            {"hour": f"2026-11-21T{hour}:00:00Z", "consumer_group": name, "handovers": number}
            for hour, name, number in hours
        ],
        "totals": {"changes": "2052", "groups": "2"},
    }


def summaries(report: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The breakdown and the chart, as the real program computes them from all rows."""
    chart, by = report["chart"], report["breakdown"]["by"]
    times = sorted({seconds(row[chart["time"]]) for row in rows})
    step, count = chart["step_seconds"], 0
    if times:
        count = (times[-1] - times[0]) // step + 1
    sums: dict[str, list[int]] = {}
    lines: dict[str, list[int]] = {}
    for row in rows:
        of_value = sums.setdefault(row[by], [0] * len(report["breakdown"]["sums"]))
        for place, name in enumerate(report["breakdown"]["sums"]):
            of_value[place] += int(row[name])
        line = lines.setdefault(row[chart["series"]], [0] * count)
        line[(seconds(row[chart["time"]]) - times[0]) // step] += int(row[chart["value"]])
    ranked = sorted(sums.items(), key=lambda item: ([-each for each in item[1]], item[0]))
    return {
        "breakdown": {
            "rows": [{"by": name, "sums": [str(each) for each in found]} for name, found in ranked],
            "count": len(ranked),
        },
        "chart": {
            "stepSeconds": step,
            "times": [times[0] + index * step for index in range(count)],
            "series": [
                {"label": name, "values": values}
                for name, values in sorted(lines.items(), key=lambda item: -sum(item[1]))
            ],
        },
    }


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def main() -> int:
    if sys.argv[1:] == ["oracle"]:
        return oracle()
    if sys.argv[1:] == ["describe"]:
        say({"format": 1, "reports": list(REPORTS.values())})
        return 0
    assert sys.argv[1:] == ["serve"], sys.argv
    for line in sys.stdin:
        message = json.loads(line)
        if "job" in message:
            code = report_of(message["job"])
            if code:
                return code
    return 0


def report_of(words: list[str]) -> int:
    """Run one job; return the program's exit code, or 0 to continue."""
    if words[0] == "lake":
        say({"event": "done", "rows": 7, "batches": 1, "is_all": True, "is_warm": False})
        return 0
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="report", required=True)
    for name, report in REPORTS.items():
        one = commands.add_parser(name)
        parameters = [f"--{each['name']}" for each in report["parameters"]]
        for option in (*RUN_OPTIONS, *parameters):
            one.add_argument(option)
    given = parser.parse_args(words)
    out, topic = Path(given.out), getattr(given, "topic", None) or "orders"
    sys.stderr.write(f"Spark says hello to {' '.join(words)}\n")
    say({"event": "progress", "stage": "reading", "done": 1, "total": 4, "rows": 10, "bytes": 99})
    if topic == "fails":
        say({"event": "failed", "message": "The store directory is empty."})
        return 0
    if topic == "ends":
        say({"event": "failed", "message": "Java is gone.", "is_last": True})
        signal.pause()
    if topic == "crashes":
        sys.stderr.write("java.lang.OutOfMemoryError\n")
        return 3
    if topic in {"hangs", "stubborn"}:
        (out / "pid").write_text(str(os.getpid()))
        while topic == "stubborn":
            signal.pause()
        while not json.loads(sys.stdin.readline() or sys.exit(0)).get("cancel"):
            continue
        say({"event": "failed", "message": "The report was cancelled."})
        return 0
    if topic == "chats":
        for number in range(5_000):
            sys.stderr.write(f"line {number}\n")
        sys.stdout.write("not json\n")
    result = traffic(topic) if given.report == "traffic" else handovers(given.group)
    if topic == "broken":
        result = {"rows": [{"topic": "x"}], "totals": {}}
    say({"event": "progress", "stage": "writing", "done": 4, "total": 4, "rows": 20, "bytes": 200})
    report = REPORTS[given.report]
    document = {"report": report, "parameters": {}, **result}
    if topic != "broken":
        document |= summaries(report, result["rows"])
    (out / "result.json").write_text(json.dumps(document))
    say({"event": "done", "rows": len(result["rows"])})
    return 0


if __name__ == "__main__":
    sys.exit(main())
