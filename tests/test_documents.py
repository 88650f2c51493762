"""Names in documents exist: files, tests, links."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from django.urls import Resolver404, resolve

from tests.support.sources import ROOT, python_sources

DOCUMENTS = (
    *sorted(ROOT.glob("*.md")),
    ROOT / "broker_core" / "ARCHITECTURE.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"[\w./-]*\w\.(?:py|md)")
TEST = re.compile(r"(?P<file>(?:[\w./-]*/)?test_\w+\.py)?(?:::)?(?P<test>test_\w+)")
DEFINITION = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
# A document's paths are relative to its folder, or to one of these.
FROM = (ROOT, ROOT / "broker_core", ROOT / "tests")
ROW = re.compile(r"^\| (?P<name>[^|]+) \| (?P<state>[^|]+) \| (?P<says>[^|]*) \|$", re.MULTILINE)
PAGE = re.compile(r"`(/[^`]*)`")
COUNTED = re.compile(r"Of (\d+) rows, (\d+) work, (\d+) work partly and (\d+) are absent")
# Files of examples, which the reader makes.
EXAMPLES = {"keyed_topics.py", "topic_counts.py"}

# Features of broker consoles and requests of their users, from a survey of eight consoles.
ROWS_OF_CONSOLES = (
    "One command to a working page",
    "Console and broker in one product",
    "Sample data at first start",
    "First-run wizard",
    "Login on by default",
    "No shared default password",
    "All settings as environment variables",
    "Liveness and readiness",
    "Prometheus metrics of the console",
    "Grafana dashboards shipped",
    "Structured (JSON) logs",
    "Works behind a sub-path",
    "Overview with health verdicts",
    "View and edit broker configuration",
    "Configuration shows default, changed, needs restart",
    "Replication state",
    "Timers and delays",
    "Half messages",
    "Multiple clusters",
    "Topology view",
    "Topics: by type, search, order, pages",
    "Lag and consumers in the list of topics",
    "Create, edit, delete with validation",
    "Clone, recreate, purge",
    "Bulk changes",
    "Import and export of configurations",
    "History of changes with difference and undo",
    "Owner, description",
    "Statistics of a topic's messages",
    "Retained time of each queue",
    "Lag in messages, by queue",
    "Lag in seconds",
    "Lag over time",
    "Live lag",
    "Stuck and rewound groups (Burrow's states)",
    "Clients, versions, subscriptions",
    "Warning about different subscriptions",
    "Thread dump of a consumer",
    "Reset to earliest, latest, time, offset, shift, copy",
    "Preview before a reset",
    "Reset of an offline group",
    "Save and restore offsets",
    "Pause a group, a queue",
    "Find by ID, key, time, offset",
    "Search in body text",
    "Search in properties",
    "Expression filter",
    "Filter dry run on a sample",
    "Saved and recent filters",
    "Progress and cancel of a long search",
    "Search limits",
    "Incomplete results are marked",
    "Body decoders",
    "JSON tree, raw, hex views",
    "Export of a result",
    "Link to one message",
    "Compare two messages",
    "Live tail",
    "Pause, clear, rate of the tail",
    "Produce with properties, key, delay, ordering key",
    "Resend a message",
    "Dead letters",
    "Bulk replay to the original topics",
    "Replay with rate, dry run, receipt",
    "Find and cancel a scheduled message",
    "Trace of one message, graphical",
    "Tracing without client changes",
    "Live trace in the browser",
    "A failed query isn't shown as an empty result",
    "Trace across a chain of messages",
    "OpenTelemetry, in or out",
    "Broker history in the console",
    "Latency percentiles",
    "Skew, hot queue, hot key",
    "Age of dead letters, retries",
    "Scheduled report",
    "Comparison with the previous period",
    "Traffic anomalies",
    "Alert rules and notifications",
    "Cost by owner",
    "LDAP, OIDC",
    "Roles by resource pattern",
    "Edit roles in the console",
    "Read-only mode",
    "Stored audit log",
    "Audit log page with filters",
    "Approval by a second person",
    "Masking",
    "Unmask by role, logged",
    "Secrets hidden and hashed",
    "Dark mode",
    "Chinese and English",
    "Command palette, keys",
    "Time zone setting",
    "Phone layout",
    "Tables as CSV",
    "Documented REST API, OpenAPI",
    "Command line for everything the pages do",
    "MCP, AI",
)


def prose(document: Path) -> str:
    return FENCE.sub("", document.read_text())


@cache
def basenames() -> frozenset[str]:
    return frozenset(Path(source.path).name for source in python_sources())


@cache
def names_by_file() -> dict[str, frozenset[str]]:
    """Return the names of the tests in each test file, by its path from the root."""
    return {
        source.path: frozenset(re.findall(DEFINITION, source.text))
        for source in python_sources()
        if source.path.startswith("tests/")
    }


def exists(document: Path, name: str) -> bool:
    """A bare file name may be any module's; the surrounding text says which."""
    if "/" not in name and name in basenames():
        return True
    return any((folder / name).exists() for folder in (document.parent, *FROM))


def is_a_test(file: str | None, test: str) -> bool:
    return any(
        test in tests and (file is None or path.endswith("/" + file.removeprefix("tests/")))
        for path, tests in names_by_file().items()
    )


def wrong_in(document: Path) -> list[str]:
    text = prose(document)
    wrong = []
    for code in CODE.findall(text):
        if (named := TEST.fullmatch(code)) is not None:
            if not is_a_test(named["file"], named["test"]):
                wrong.append(f"no test {code}")
        elif FILE.fullmatch(code) and code not in EXAMPLES and not exists(document, code):
            wrong.append(f"no file {code}")
    links = [link for link in LINK.findall(text) if "://" not in link]
    there = {link for link in links if (document.parent / link).exists()}
    return wrong + [f"nothing behind the link {link}" for link in links if link not in there]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_named_tests_exist(document: Path) -> None:
    wrong = [f"{document.relative_to(ROOT)}: {what}" for what in wrong_in(document)]

    if wrong:
        pytest.fail("\n".join(["", *wrong]), pytrace=False)


def test_missing_parts_are_detected(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "`store/flush.py`, `store/no_such.py`, `unit/store/test_flush.py::test_no_such`, "
        "`test_flush.py::test_a_failed_flush_is_never_retried`, [x](no_such.md)\n"
        "```\n`inside/a_fence.py`\n```\n"
    )

    assert wrong_in(document) == [
        "no file store/no_such.py",
        "no test unit/store/test_flush.py::test_no_such",
        "nothing behind the link no_such.md",
    ]


def console_rows() -> tuple[str, list[re.Match[str]]]:
    """Return the part of the console's document that has the table, and its rows."""
    text = (ROOT / "docs" / "console.md").read_text()
    _before, _title, rest = text.partition("## Compared with other consoles")
    part = re.split(r"^## ", rest, flags=re.MULTILINE)[0]
    return part, [row for row in ROW.finditer(part) if row["name"] not in {"Row", "---"}]


def leads_somewhere(address: str) -> bool:
    try:
        resolve(address)
    except Resolver404:
        return False
    return True


def test_the_consoles_table_has_each_row_once() -> None:
    _part, rows = console_rows()

    assert [row["name"] for row in rows] == list(ROWS_OF_CONSOLES)


def test_the_consoles_table_counts_working_rows() -> None:
    part, rows = console_rows()
    states = [row["state"] for row in rows]

    stated = COUNTED.search(part)
    assert stated is not None
    counted = [len(rows), *(states.count(each) for each in ("works", "partly", "absent"))]
    assert [int(each) for each in stated.groups()] == counted
    assert sum(counted[1:]) == len(rows)


def test_working_entries_of_the_consoles_table_can_be_viewed_and_the_rest_explain_why() -> None:
    _part, rows = console_rows()

    for row in rows:
        codes = CODE.findall(row["says"])
        shown = [code for code in codes if code.startswith(("/", "deploy/", "test_"))]
        assert row["state"] != "works" or shown, f"nothing shows {row['name']!r}"
        assert row["state"] == "works" or len(row["says"]) > 20, f"no reason for {row['name']!r}"
        lost = [page for page in PAGE.findall(row["says"]) if not leads_somewhere(page)]
        assert not lost, f"{row['name']!r} names missing pages: {lost}"
