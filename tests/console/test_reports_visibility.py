"""Reports about keys and tags: a result reveals nothing about messages hidden from a user."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from django.apps import apps
from django.urls import reverse
from django.utils import timezone

from console.accounts.models import CustomRole
from console.accounts.scopes import every_scope
from console.api.operations import OPERATIONS
from console.data.reports import catalog, health, services, tasks, views
from console.data.reports.models import ReportRun, RunState
from tests.console.api.conftest import Program
from tests.console.test_addresses import ALL

if TYPE_CHECKING:
    from pathlib import Path

    from django.test import Client

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("brokers")]

THEIRS, MINE = "K-theirs-4711", "K-mine-0815"
KEYS: dict[str, Any] = {
    "name": "keys",
    "title": "Hot keys",
    "question": "Which keys?",
    "parameters": [{"name": "topic", "type": "topic", "label": "Topic"}],
    "columns": [
        {"name": "topic", "type": "string", "label": "Topic", "link": "topic"},
        {"name": "key", "type": "string", "label": "Key", "from_messages_of": "topic"},
        {"name": "messages", "type": "bigint", "label": "Messages", "unit": "messages"},
        {"name": "first_stored", "type": "timestamp", "label": "First"},
        {"name": "last_stored", "type": "timestamp", "label": "Last"},
    ],
    "totals": [{"name": "messages", "label": "Messages", "unit": "messages"}],
    "bars": {"label": "By key", "by": "key", "value": "messages"},
    "chart": {
        "label": "By key",
        "time": "first_stored",
        "value": "messages",
        "series": "key",
        "step_seconds": 60,
    },
    "breakdown": {"label": "By key", "by": "key", "sums": ["messages"]},
    "behind": {
        "topic": "topic",
        "first": "first_stored",
        "last": "last_stored",
        "key": "key",
    },
}


def row(topic: str, key: str) -> dict[str, str]:
    moment = "2026-11-21T10:00:00Z"
    return {
        "topic": topic,
        "key": key,
        "messages": "7",
        "first_stored": moment,
        "last_stored": moment,
    }


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReportRun:
    """A result with a key of another team's topic in each of its parts."""
    monkeypatch.setattr(health, "problems", list)
    for module in (services, views):
        monkeypatch.setattr(module, "parquet_path", lambda pk: tmp_path / f"{pk}.parquet")
    monkeypatch.setattr(tasks.run_report, "apply_async", lambda **_how: None)
    monkeypatch.setattr(
        "console.data.reports.catalog.reports",
        lambda: {"keys": catalog.report_of(KEYS)},
    )
    now = timezone.now()
    series = [{"label": THEIRS, "values": [7]}, {"label": MINE, "values": [7]}]
    made = ReportRun.objects.create(
        report="keys",
        state=RunState.DONE,
        started_at=now,
        finished_at=now,
        log_tail=f"read {THEIRS}",
        result={
            "report": KEYS,
            "rows": [row("Orders", THEIRS), row("Mine", MINE), row("%DLQ%audit", THEIRS)],
            "totals": {"messages": "21"},
            "bars": {"rows": [{"by": THEIRS, "value": "14"}], "count": 1, "others": "0"},
            "breakdown": {"rows": [{"by": THEIRS, "sums": ["14"]}], "count": 1},
            "chart": {"stepSeconds": 60, "times": [1_795_000_000], "series": series},
            "finding": {
                "text": "The key %(key)s occurs most.",
                "figures": {"key": {"value": THEIRS}},
            },
        },
        result_rows=3,
    )
    (tmp_path / f"{made.pk}.parquet").write_bytes(b"PAR1" + THEIRS.encode())
    return made


def allow(account: Any, topics: list[str], *actions: str) -> None:
    role = CustomRole.objects.create(name="mine", actions=list(actions), topics=topics)
    role.members.add(account)


def body_of(answer: Any) -> bytes:
    """Return the body of an answer, empty for a rejection."""
    body: bytes = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return body if answer.status_code == 200 else b""


def shown_by(client: Client, run: ReportRun) -> dict[str, bytes]:
    """Return the answer of each report address about a run."""
    found = {}
    for name, parameters in ALL:
        if name.startswith("reports:"):
            known = {"run_id": run.pk, "schedule_id": 1, "report": "keys"}
            address = reverse(name, kwargs={each: known[each] for each in parameters})
            found[name] = body_of(client.get(address))
    return found


def told_by(program: Program, run: ReportRun) -> dict[str, bytes]:
    """Return the answer of each operation about runs."""
    found = {}
    for each in OPERATIONS.values():
        if each.method == "GET" and each.area == "reports" and "schedule}" not in each.path:
            path = each.path.removeprefix("/api/v1").replace("{run}", str(run.pk))
            found[each.name] = body_of(program.get(path))
    return found


def test_a_user_without_message_permission_learns_no_key(limited, limited_account, run) -> None:
    pages = shown_by(limited, run)
    operations = told_by(Program(limited_account, every_scope()), run)

    telling = [name for name, body in (pages | operations).items() if b"K-" in body]
    assert telling == []
    assert pages["reports:parquet"] == operations["report_run_parquet"] == b""
    assert "3 values are hidden" in pages["reports:run"].decode()
    assert json.loads(operations["report_run"])["result"]["hidden_values"] == 3
    assert pages["reports:csv"].splitlines()[1].startswith(b"Orders,,7,")


def test_only_users_who_may_see_a_topics_messages_learn_its_keys(
    limited, limited_account, run
) -> None:
    allow(limited_account, ["Mine"], "message.see")

    answers = shown_by(limited, run) | told_by(Program(limited_account, every_scope()), run)

    assert [name for name, body in answers.items() if THEIRS.encode() in body] == []
    assert {name for name, body in answers.items() if MINE.encode() in body} == {
        *("reports:run", "reports:csv", "report_run", "report_run_csv")
    }


def test_a_token_without_the_messages_scope_sees_no_key(admin_account, run) -> None:
    bare = told_by(Program(admin_account, ["reports:read"]), run)
    both = told_by(Program(admin_account, ["reports:read", "messages:read"]), run)

    assert [name for name, body in bare.items() if b"K-" in body] == []
    assert THEIRS.encode() in both["report_run"]
    assert THEIRS.encode() in both["report_run_parquet"]


def test_a_viewer_sees_all_of_it(actors, run) -> None:
    answers = shown_by(actors.reader, run)

    named = {name for name, body in answers.items() if THEIRS.encode() in body}
    assert named == {"reports:run", "reports:csv", "reports:chart", "reports:parquet"}
    assert answers["reports:png"].startswith(b"\x89PNG")
    assert b"occurs most" in answers["reports:run"]


@pytest.mark.parametrize(
    ("topics", "parameters", "status"),
    [
        ([], {}, 403),
        (["Mine"], {}, 403),
        (["Mine"], {"topic": "Orders"}, 403),
        (["Mine"], {"topic": "Mine"}, 200),
    ],
)
def test_running_and_scheduling_it_needs_permission_to_see_it(
    topics, parameters, status, limited_account, brokers, run
) -> None:
    for name in ("Orders", "Mine"):
        brokers.add_topic(name)
    allow(limited_account, topics, "message.see", "console.operate")
    program = Program(limited_account, every_scope())
    fields = {"report": "keys", "parameters": parameters}
    when = {"name": "daily", "kind": "cron", "cron": "0 6 * * *"}

    started = program.post("/report-runs", fields)
    scheduled = program.post("/report-schedules", fields | when)

    assert [started.status_code, scheduled.status_code] == [status, status]
    assert ReportRun.objects.exclude(pk=run.pk).exists() is (status == 200)


def test_a_schedule_cannot_be_switched_to_topics_hidden_from_its_editor(
    admin_account, limited_account, brokers, run
) -> None:
    brokers.add_topic("Orders")
    when = {"name": "daily", "kind": "cron", "cron": "0 6 * * *"}
    made = Program(admin_account, every_scope()).post(
        "/report-schedules", {"report": "keys", "parameters": {"topic": "Orders"}, **when}
    )
    allow(limited_account, ["Mine"], "message.see", "console.operate")

    changed = Program(limited_account, every_scope()).patch(
        f"/report-schedules/{made.json()['id']}", {"enabled": True}
    )

    assert changed.status_code == 403


def test_results_from_before_are_marked(limited, run) -> None:
    old = json.loads(json.dumps(KEYS))
    for column in old["columns"]:
        column.pop("from_messages_of", None)
    ReportRun.objects.filter(pk=run.pk).update(result={**run.result, "report": old})
    migration = importlib.import_module("console.data.reports.migrations.0005_values_from_messages")

    migration.mark(apps, None)

    assert THEIRS.encode() not in shown_by(limited, run)["reports:run"]
