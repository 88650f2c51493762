"""The SQL page: permissions, display and storage of results, and the end of a query."""

from __future__ import annotations

import io
import json
import re
import time

import pyarrow.parquet as pq
import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.urls import reverse

from console.accounts.roles import may_query
from console.data.sql import charts, services, views
from console.data.sql.desk import Desk, DeskError, tables
from console.data.sql.models import QueryRun, SavedQuery
from console.data.sql.notifications import result_of
from console.data.sql.rights import RightError, checked, covers, grant, take, topics_of
from console.data.sql.runs import Column, new_run, run_of
from console.data.sql.scheduled import perform
from console.data.sql.values import shown
from console.people.audit.models import Entry
from console.people.masking.models import MaskingRule
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder
from tests.console.api.conftest import Program

pytestmark = pytest.mark.django_db

HANGS_S = 120
ENDLESS = "SELECT max(hash(a.range + b.range)) FROM range(10000000) a, range(10000000) b"


@pytest.fixture
def desk() -> Desk:
    return Desk(HANGS_S)


@pytest.fixture
def run_query(actors, brokers, settings, lake, tmp_path, monkeypatch, desk):
    """The page with a small lake; returns a function from a query to its result page."""
    settings.TREBUCHET_LAKE, settings.TREBUCHET_DATA = str(lake), tmp_path
    monkeypatch.setattr(services, "desk", desk)
    monkeypatch.setattr(services, "WAITED_S", HANGS_S)
    monkeypatch.setattr(views, "tables", lambda: {"tables": []})

    def ask(sql: str, client=actors.admin):
        return client.post(reverse("sql:run"), {"sql": sql}, follow=True)

    return ask


def run_id_of(response) -> str:
    return str(response.resolver_match.kwargs["run_id"])


def wait_until_running(desk: Desk, run_id: str) -> None:
    deadline = time.monotonic() + HANGS_S
    while (working := desk.working(run_id)) is not None and working.percent is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_without_a_lake_the_page_explains_how_to_enable_it(actors, brokers, settings) -> None:
    settings.TREBUCHET_LAKE = ""

    html = actors.admin.get(reverse("sql:editor")).content.decode()

    assert "TREBUCHET_LAKE=true deploy/up" in html
    assert "<textarea" not in html


@pytest.mark.parametrize(
    ("span", "problem"),
    [
        ({"from": "9", "to": "5"}, "The time range ends before it starts."),
        ({"from": "5"}, "needs a start (from) and an end (to)"),
        ({"from": "5", "to": "soon"}, "isn&#x27;t a time"),
        ({"from": "5", "to": "9" * 15}, "ends after the year 9999"),
    ],
)
def test_a_link_with_an_impossible_range_shows_its_problem(
    span, problem, actors, brokers, settings, lake
) -> None:
    settings.TREBUCHET_LAKE = str(lake)

    html = actors.admin.get(reverse("sql:editor"), {"topic": "orders"} | span).content.decode()

    assert problem in html
    assert "topic = &#x27;orders&#x27;" not in html


def test_a_query_shows_its_rows_and_its_chart(run_query) -> None:
    html = run_query(
        "SELECT topic, count(*) AS sent, 9223372036854775807 AS big, NULL AS nothing "
        "FROM bronze.messages GROUP BY topic ORDER BY sent DESC"
    ).content.decode()

    assert "2 rows" in html
    assert re.search(r"<td>orders</td><td class=\"num\">20</td>", html)
    assert "9223372036854775807" in html
    assert '<span class="sql-null">NULL</span>' in html
    assert '<dl class="report-bars">' in html


def test_rows_over_time_become_points(run_query, actors) -> None:
    page = run_query(
        "SELECT store_timestamp, topic, 1 AS sent FROM bronze.messages ORDER BY store_timestamp"
    )

    points = actors.admin.get(reverse("sql:chart", args=[run_id_of(page)])).json()

    assert points["stepSeconds"] == 1
    assert {each["label"]: sum(each["values"]) for each in points["series"]} == {
        "orders": 20,
        "bills": 10,
    }


def test_an_error_is_reported_in_one_sentence_and_the_query_stays_in_the_editor(run_query) -> None:
    html = run_query("SELECT topc FROM bronze.messages").content.decode()

    assert "Referenced column &quot;topc&quot; not found" in html
    assert "SELECT topc FROM bronze.messages</textarea>" in html


def test_exports_have_the_querys_rows_and_are_recorded(run_query, actors) -> None:
    page = run_query("SELECT 9007199254740993 AS big, '=1+1' AS text, NULL AS nothing, -1.5 AS low")
    found = {}
    for kind in ("csv", "jsonl", "parquet"):
        address = reverse("sql:export", args=[run_id_of(page), kind])
        found[kind] = b"".join(actors.admin.post(address).streaming_content)

    assert found["csv"].decode() == ("big,text,nothing,low\r\n9007199254740993,'=1+1,,-1.5\r\n")
    assert json.loads(found["jsonl"]) == {
        "big": "9007199254740993",
        "text": "=1+1",
        "nothing": None,
        "low": "-1.5",
    }
    assert pq.read_table(io.BytesIO(found["parquet"]))["big"].to_pylist() == [9007199254740993]
    assert sorted(Entry.objects.values_list("action", flat=True)) == [
        *["sql.export"] * 3,
        "sql.run",
    ]


def test_a_cancelled_query_ends_within_three_seconds(
    run_query, actors, admin_account, desk
) -> None:
    run = new_run(ENDLESS, "UTC", admin_account.pk, "ada", None)
    desk.start(run)
    wait_until_running(desk, run.id)
    progress = actors.admin.get(reverse("sql:progress", args=[run.id]))
    working = desk.working(run.id)
    assert working is not None
    began = time.monotonic()

    page = actors.admin.post(reverse("sql:cancel", args=[run.id]), follow=True)

    assert "hx-get" in progress.content.decode()
    assert time.monotonic() - began < 3
    assert working.process.poll() is not None
    assert "This query was cancelled." in page.content.decode()
    assert "HX-Refresh" in actors.admin.get(reverse("sql:progress", args=[run.id]))


def test_a_query_that_times_out_is_ended_with_advice(run_query, admin_account) -> None:
    desk = Desk(0.5)
    run = new_run(ENDLESS, "UTC", admin_account.pk, "ada", None)

    desk.start(run)
    desk.wait(run.id, HANGS_S)

    outcome = run.outcome()
    assert outcome is not None
    assert outcome.state == "failed"
    assert "took longer" in outcome.sentence


def test_a_user_runs_one_query_at_a_time_and_all_users_two(run_query, desk) -> None:
    runs = [new_run(ENDLESS, "UTC", number, "ada", None) for number in (1, 1, 2, 3)]
    try:
        desk.start(runs[0])
        with pytest.raises(DeskError, match="already have a query running"):
            desk.start(runs[1])
        desk.start(runs[2])
        with pytest.raises(DeskError, match="Other people are querying"):
            desk.start(runs[3])
    finally:
        for run in runs:
            desk.cancel(run.id)
            desk.wait(run.id, HANGS_S)


def test_a_run_whose_console_stopped_reports_it(run_query, actors, admin_account) -> None:
    run = new_run("SELECT 1", "UTC", admin_account.pk, "ada", None)
    run.make()

    html = actors.admin.get(reverse("sql:result", args=[run.id])).content.decode()

    assert "The console stopped while the query ran." in html


def test_only_authorized_users_may_query(run_query, actors, reader_account) -> None:
    assert actors.reader.get(reverse("sql:editor")).status_code == 403
    assert run_query("SELECT 1", actors.reader).status_code == 403
    assert "/sql/" not in actors.reader.get(reverse("topics:list")).content.decode()

    call_command("allow_sql", "rita", stdout=io.StringIO())

    assert "1 row" in run_query("SELECT 1", actors.reader).content.decode()
    assert 'href="/sql/"' in actors.reader.get(reverse("topics:list")).content.decode()


COUNTED = "SELECT topic, count(*) AS sent FROM bronze.messages GROUP BY topic"


def test_a_user_limited_to_topics_only_sees_their_rows_and_results(
    run_query, actors, lake, monkeypatch
) -> None:
    monkeypatch.setattr(views, "tables", tables)
    call_command("allow_sql", "rita", topics=["ord*"], stdout=io.StringIO())

    own = run_query(COUNTED, actors.reader)
    others = reverse("sql:result", args=[run_id_of(run_query(COUNTED))])
    html = own.content.decode()

    assert "<td>orders</td>" in html
    assert "<td>bills</td>" not in html
    assert '<span class="mono break">ord*</span>' in html
    assert ">bronze.messages</summary>" in html
    assert ">bronze.gaps</summary>" not in html
    assert actors.reader.get(others).status_code == 404
    assert actors.admin.get(reverse("sql:result", args=[run_id_of(own)])).status_code == 200

    call_command("allow_sql", "rita", topics=["bills"], stdout=io.StringIO())

    assert actors.reader.get(reverse("sql:result", args=[run_id_of(own)])).status_code == 404


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        (
            "SELECT pg_get_viewdef(i) FROM range(20000, 30000) t(i)",
            "pg_get_viewdef() isn&#x27;t allowed in a query.",
        ),
        (
            'WITH RECURSIVE "{file}" AS (SELECT topic FROM "{file}" UNION ALL SELECT * FROM '
            '"{file}" WHERE false) SELECT * FROM "{file}"',
            "can&#x27;t be the name of a table in a query.",
        ),
    ],
)
def test_a_user_limited_to_topics_reads_no_file_with_sql(
    run_query, actors, lake, sql, sentence
) -> None:
    call_command("allow_sql", "rita", topics=["ord*"], stdout=io.StringIO())
    file = next((lake / "bronze" / "messages").glob("*/*.parquet"))

    html = run_query(sql.format(file=file), actors.reader).content.decode()

    assert sentence in html
    assert "<td>bills</td>" not in html


def test_permissions_of_a_user_and_of_groups_add_up(reader_account) -> None:
    everything, some = (Group.objects.create(name=name) for name in ("everything", "some"))
    assert topics_of(reader_account) == ()

    grant(reader_account, ("own",))
    grant(some, ("shop-*", "bills"))
    some.user_set.add(reader_account)
    assert topics_of(reader_account) == ("bills", "own", "shop-*")

    everything.user_set.add(reader_account)
    grant(everything, None)
    assert topics_of(reader_account) is None

    take(everything)
    take(some)
    assert topics_of(reader_account) == ("own",)
    assert not covers(("own",), None)
    assert not covers(("own",), ("own", "bills"))
    assert covers(("own", "bills"), ("own",))


def test_the_permissions_page_grants_and_revokes(actors, reader_account) -> None:
    address, grantee = reverse("sql:rights"), f"person:{reader_account.pk}"
    assert actors.reader.get(address).status_code == 403

    wrong = actors.admin.post(address, {"grantee": grantee, "scope": "some", "topics": "a b;c"})
    actors.admin.post(
        address, {"grantee": grantee, "scope": "some", "topics": "shop-*, %DLQ%billing"}
    )
    html = actors.admin.get(address).content.decode()

    assert wrong.status_code == 422
    assert "a valid topic name" in wrong.content.decode()
    assert topics_of(reader_account) == ("%DLQ%billing", "shop-*")
    assert "%DLQ%billing, shop-*" in html
    actors.admin.post(reverse("sql:right-take"), {"grantee": grantee})
    assert not may_query(get_user_model().objects.get(pk=reader_account.pk))


@pytest.mark.parametrize(
    ("topics", "sentence"),
    [
        ([], "at least one"),
        (["a b"], "a b. isn.t a valid topic name"),
        (["';--"], "a valid topic name"),
        (["t" * 128], "a valid topic name"),
        ([f"topic{number}" for number in range(51)], "51 topics"),
    ],
)
def test_a_permission_for_an_invalid_topic_is_rejected(topics, sentence) -> None:
    with pytest.raises(RightError, match=sentence):
        checked(topics)


def test_a_shared_query_is_read_by_others_and_changed_by_its_owner(run_query, actors) -> None:
    call_command("allow_sql", "rita", stdout=io.StringIO())
    for name, shared in (("mine", ""), ("ours", "on")):
        data = {"sql": f"SELECT '{name}'", "name": name, "is_shared": shared}
        actors.admin.post(reverse("sql:save"), data)
    ours = SavedQuery.objects.get(name="ours")

    html = actors.reader.get(reverse("sql:editor")).content.decode()
    opened = actors.reader.get(reverse("sql:editor"), {"saved": ours.pk}).content.decode()
    deleted = actors.reader.post(reverse("sql:delete", args=[ours.pk]))

    assert ">ours</a>" in html
    assert ">mine</a>" not in html
    assert "SELECT &#x27;ours&#x27;</textarea>" in opened
    assert deleted.status_code == 404
    assert SavedQuery.objects.count() == 2


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("68c3a9", "bytes", "hé"),
        ("ff00", "bytes", "0xff00"),
        ({"k": [1]}, "nested", '{"k": [1]}'),
        (False, "boolean", "false"),
        ("nan", "float", "nan"),
    ],
)
def test_a_cell_is_shown_by_its_kind(value, kind, text) -> None:
    assert shown(value, kind) == text


def test_a_time_is_shown_whole() -> None:
    html = shown("2026-11-22T08:00:01.000250Z", "moment")

    assert 'data-moment="1795334401000"' in html
    assert ">.00025<" in html


def test_an_impossible_calendar_time_is_shown_unchanged() -> None:
    assert shown("12026-11-22T08:00:01Z", "moment") == "12026-11-22T08:00:01Z"


def test_a_result_of_years_by_the_second_has_no_chart() -> None:
    columns = (Column("t", "timestamp", "time"), Column("n", "int64", "integer"))
    times = ("2024-01-01T00:00:00", "2024-01-01T00:00:01", "2026-01-01T00:00:00")
    rows = [[text, 1] for text in times]

    assert charts.over_time(columns, rows) is None


def test_an_unknown_result_is_not_found(run_query, actors) -> None:
    unknown = "00000000-0000-0000-0000-000000000001"

    assert run_of(unknown) is None
    assert actors.admin.get(reverse("sql:result", args=[unknown])).status_code == 404


def test_a_wide_result_has_no_chart() -> None:
    columns = (
        Column("t", "timestamp", "time"),
        *(Column(f"n{number}", "int64", "integer") for number in range(5)),
    )
    rows = [[f"2026-01-01T00:00:0{second}", *range(5)] for second in range(3)]

    assert charts.over_time(columns, rows) is None
    assert charts.over_time(columns[:2], [row[:2] for row in rows]) is not None


@pytest.fixture
def secret(lake, tmp_path_factory, settings):
    """A lake with a message whose property is a secret."""
    directory = tmp_path_factory.mktemp("secret")
    builder = StoreBuilder(directory / "store")
    builder.put("orders", properties=b"token\x01t0ken\x02")
    builder.write()
    made = Lake(directory / "lake", builder.root)
    made.take_all()
    settings.TREBUCHET_LAKE = str(made.directory)


def test_masking_rules_apply_on_the_page_in_its_files_and_for_programs(
    run_query, secret, actors, admin_account
) -> None:
    text = "SELECT properties['token'] AS harmless FROM bronze.messages"
    before = run_query(text)
    assert "t0ken" in before.content.decode()

    MaskingRule.objects.create(name="tokens", topics=["ord*"], kind="property", what="token")

    # Results from before the rule are no longer shown, and not exported either.
    old = run_id_of(before)
    assert actors.admin.get(reverse("sql:result", args=[old])).status_code == 404
    assert actors.admin.post(reverse("sql:export", args=[old, "parquet"])).status_code == 404
    program = Program(admin_account)
    assert program.get(f"/sql/runs/{old}").status_code == 404
    now = run_query(text)
    assert "***" in now.content.decode()
    for kind in ("csv", "jsonl", "parquet"):
        file = actors.admin.post(reverse("sql:export", args=[run_id_of(now), kind]))
        assert b"t0ken" not in b"".join(file.streaming_content)
    of_program = program.post("/sql/runs", {"sql": text}).json()
    assert program.get(f"/sql/runs/{of_program['id']}").json()["rows"] == [["***"]]


def test_a_scheduled_query_is_masked_and_its_old_result_is_not_sent(
    run_query, secret, admin_account
) -> None:
    text = "SELECT properties['token'] AS harmless FROM bronze.messages"
    query = SavedQuery.objects.create(owner=admin_account, name="tokens", sql=text)
    runs = [QueryRun.objects.create(slot=f"{at}", query=query, began_ms=at) for at in (1, 2)]
    perform(runs[0], "UTC")
    assert "t0ken" in str(result_of(runs[0]))

    MaskingRule.objects.create(name="tokens", topics=["*"], kind="property", what="token")
    perform(runs[1], "UTC")

    assert result_of(runs[0]) is None
    assert "***" in str(result_of(runs[1]))
    assert "t0ken" not in str(result_of(runs[1]))
