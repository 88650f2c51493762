"""GET /metrics of the console: access and contents."""

from __future__ import annotations

import shutil
import subprocess
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families as parsed

from console.data.pipeline.lake_status import LakeStatus
from console.data.reports.models import ReportRun, RunState
from console.lib.moment import now_ms
from console.observe.alerts.models import Alert, Channel, Message, Rule
from console.observe.history import metrics
from console.observe.history.access import history_store
from console.observe.history.database import HistoryError
from console.observe.history.metrics import Subject
from console.observe.history.status import STATUS, Status
from console.observe.scraping import access, page, services, views
from console.observe.scraping.services import EVERY_MS, STALE_MS, Cached, Services
from console.observe.verdicts.judge import VERDICTS, Verdict, Verdicts
from tests.support.history_points import keep

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

pytestmark = pytest.mark.django_db

TOKEN = "a-token-of-some-length-4711"
LIMIT_SECONDS = 60


@pytest.fixture(autouse=True)
def _asked_anew(brokers, settings, monkeypatch) -> None:
    """Reset caches, so that no other test affects this one."""
    settings.TREBUCHET_METRICS = access.LOOPBACK
    views.shared_page.forget()
    found = Services(True, False, False, None)
    monkeypatch.setattr(services, "cached", Cached(lambda: found))


def scrape(**headers: Any) -> Any:
    views.shared_page.forget()
    return Client().get("/metrics", **headers)


def samples(name: str) -> list[Sample]:
    answer = scrape()
    assert answer.status_code == 200, answer.content
    return [
        each
        for family in parsed(answer.content.decode())
        for each in family.samples
        if each.name == f"trebuchet_{name}"
    ]


def value(name: str, /, **labels: str) -> float:
    [found] = [each for each in samples(name) if labels.items() <= each.labels.items()]
    return float(found.value)


def sampled(
    *, at_ms: int | None = None, groups: int = 1, problems: dict[str, str] | None = None
) -> None:
    """Write a sample of `groups` groups that read one topic, and the collector's status."""
    at = now_ms() if at_ms is None else at_ms
    rows = {
        (Subject(metrics.BROKER, "broker-a", "0"), metrics.CONNECTIONS): [3],
        (Subject(metrics.TOPIC, "broker-a", "Orders"), metrics.RETAINED): [100],
    }
    for number in range(groups):
        progress = Subject(
            metrics.PROGRESS, "broker-a", metrics.pair(f"billing-{number}", "Orders")
        )
        rows[progress, metrics.LAG] = [7]
        rows[progress, metrics.LAG_AGE] = [2_500]
        rows[Subject(metrics.GROUP, "broker-a", f"billing-{number}"), metrics.MEMBERS] = [2]
    keep(history_store(), at, rows)
    status = Status(at_ms=at, process=None, numbers=9, took_ms=40, problems=problems or {})
    history_store().note(STATUS, msgspec.json.encode(status))


def test_no_one_may_query_unless_a_setting_allows_it(settings) -> None:
    settings.TREBUCHET_METRICS = access.OFF

    assert scrape().status_code == 404
    assert scrape(HTTP_AUTHORIZATION=f"Bearer {TOKEN}").status_code == 404


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.3.2.1"])
def test_this_machine_may_query_on_loopback(address) -> None:
    assert scrape(REMOTE_ADDR=address).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"REMOTE_ADDR": "192.0.2.7"},
        {"REMOTE_ADDR": "::ffff:192.0.2.7"},
        {"REMOTE_ADDR": ""},
        # An unconfigured proxy on this machine.
        {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "127.0.0.1"},
        {"REMOTE_ADDR": "127.0.0.1", "HTTP_FORWARDED": "for=192.0.2.7"},
    ],
)
def test_others_may_not(headers) -> None:
    answer = scrape(**headers)

    assert answer.status_code == 403
    assert b"trebuchet_" not in answer.content


@pytest.mark.parametrize("given", ["", TOKEN, "Bearer", "Bearer x", f"Basic {TOKEN}", "Bearer é"])
def test_without_the_token_no_one_gets_the_page(given, settings) -> None:
    settings.TREBUCHET_METRICS, settings.TREBUCHET_METRICS_TOKEN = access.TOKEN, TOKEN

    answer = scrape(HTTP_AUTHORIZATION=given)

    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
    assert b"trebuchet_" not in answer.content


def test_a_client_with_the_token_may_query_from_anywhere(settings) -> None:
    settings.TREBUCHET_METRICS, settings.TREBUCHET_METRICS_TOKEN = access.TOKEN, TOKEN

    answer = scrape(HTTP_AUTHORIZATION=f"Bearer {TOKEN}", REMOTE_ADDR="192.0.2.7")

    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.parametrize(
    ("mode", "token", "is_behind_proxy", "word"),
    [
        (access.TOKEN, "", False, "TREBUCHET_METRICS_TOKEN"),
        (access.TOKEN, "short", False, "20 characters"),
        (access.LOOPBACK, "", True, "every client of a proxy"),
    ],
)
def test_settings_that_ask_for_too_much_are_rejected(mode, token, is_behind_proxy, word) -> None:
    with pytest.raises(ImproperlyConfigured, match=word):
        access.check(mode, token, is_behind_proxy=is_behind_proxy)


def test_the_last_sample_is_reported() -> None:
    sampled()

    labels = {"node_id": "broker-a", "consumer_group": "billing-0", "topic": "Orders"}
    assert value("lag_messages", **labels) == 7
    assert value("lag_seconds", **labels) == 2.5
    assert value("group_members", consumer_group="billing-0") == 2
    assert value("topic_retained_messages", topic="Orders") == 100
    assert value("broker_sampled", node_id="broker-a", broker_id="0") == 1
    assert value("collector_up") == 1
    assert value("collector_sample_seconds") == 0.04
    assert value("collector_problems") == 0


def test_unknown_values_are_not_a_series() -> None:
    sampled(at_ms=now_ms() - 600_000)

    assert value("collector_up") == 0
    assert samples("lag_seconds") == samples("broker_sampled") == []


def test_a_console_without_a_collector_only_reports_that() -> None:
    assert value("collector_up") == 0
    assert samples("lag_seconds") == samples("collector_last_sample_timestamp_seconds") == []


def test_brokers_without_a_sample_are_counted() -> None:
    sampled(problems={"broker-b:0": "it does not answer"})

    assert value("collector_problems") == 1


def test_series_are_capped_and_the_page_shows_it(settings) -> None:
    settings.TREBUCHET_METRICS_SERIES_MAX = 5
    sampled(groups=8)

    assert len(samples("lag_seconds")) == 5
    assert {each.labels["metric"] for each in samples("metrics_truncated")} == {
        "trebuchet_lag_messages",
        "trebuchet_lag_seconds",
        "trebuchet_group_members",
    }


def test_verdicts_are_reported() -> None:
    verdict = Verdict("no-members", "bad", metrics.GROUP, "broker-a", "billing", 1, 2, {"lag": 7.0})
    history_store().note(VERDICTS, msgspec.json.encode(Verdicts(5_000, [verdict])))

    assert value("verdict", rule="no-members", severity="bad", name="billing") == 1
    assert value("verdicts") == 1
    assert value("verdicts_judged_timestamp_seconds") == 5


def test_alerts_are_counted_by_rule_and_messages_by_channel() -> None:
    Rule.objects.create(name="quiet", source=Rule.Source.VERDICT)
    Rule.objects.create(name="off", source=Rule.Source.VERDICT, enabled=False)
    channel = Channel.objects.create(name="on-call", kind=Channel.Kind.SLACK)
    for number, (state, muted) in enumerate(
        [("firing", ""), ("firing", "silence"), ("pending", "")]
    ):
        Alert.objects.create(
            rule_name="lag", state=state, muted=muted, began_ms=1, open_key=str(number)
        )
    Alert.objects.create(rule_name="lag", state="resolved", began_ms=1)
    Message.objects.create(channel=channel, created_ms=now_ms() - 60_000)
    Message.objects.create(channel=channel, created_ms=1, state=Message.State.SENT)

    assert value("alerts", rule="lag", state="firing") == 2
    assert value("alerts", rule="lag", state="pending") == 1
    assert value("alerts", rule="quiet", state="firing") == 0
    assert {each.labels["rule"] for each in samples("alerts")} == {"lag", "quiet"}
    assert value("alerts_muted") == 1
    assert value("alert_messages", channel="on-call", state="waiting") == 1
    assert value("alert_messages", channel="on-call", state="failed") == 0
    assert value("alert_message_waiting_seconds", channel="on-call") >= 60


def test_reports_show_when_they_last_succeeded() -> None:
    now = timezone.now()
    hour = timedelta(hours=1)
    done = {"started_at": now - 2 * hour, "finished_at": now - hour}
    ReportRun.objects.create(
        report="traffic", state=RunState.DONE, created_at=now - 2 * hour, **done
    )
    ReportRun.objects.create(report="traffic", state=RunState.FAILED, created_at=now, **done)
    ReportRun.objects.create(report="skew", state=RunState.QUEUED, created_at=now - hour / 2)

    assert value("report_runs", report="traffic", state="failed") == 1
    assert value("report_failed", report="traffic") == 1
    assert value("report_succeeded_timestamp_seconds", report="traffic") == pytest.approx(
        (now - hour).timestamp()
    )
    assert value("report_seconds", report="traffic") == pytest.approx(3600)
    assert value("report_queued_seconds") >= 1800


def test_more_groups_do_not_cause_more_database_queries(django_assert_num_queries) -> None:
    sampled()
    scrape()
    with CaptureQueriesContext(connection) as few:
        scrape()
    sampled(groups=20)
    ReportRun.objects.bulk_create(ReportRun(report=f"r{number}") for number in range(20))
    Rule.objects.bulk_create(
        Rule(name=f"r{number}", source=Rule.Source.VERDICT) for number in range(20)
    )

    with django_assert_num_queries(len(few)):
        scrape()


def test_neighbours_arrive_after_the_first_page_and_delay_none(monkeypatch) -> None:
    lake = {
        "committed_ms": 7_000,
        "pending_bytes": 12,
        "jobs": {"checked_ms": 8_000, "error": "the disk is full"},
        "tables": [{"table": "bronze.messages", "rows": 30, "bytes": 900, "files": 2}],
    }
    cached = Cached(lambda: Services(True, False, True, LakeStatus("", lake)))
    monkeypatch.setattr(services, "cached", cached)

    assert samples("redis_up") == []
    cached.wait()

    assert (value("redis_up"), value("worker_up"), value("pipeline_up")) == (1, 0, 1)
    assert value("lake_readable") == value("lake_failing") == 1
    assert value("lake_committed_timestamp_seconds") == 7
    assert value("lake_checked_timestamp_seconds") == 8
    assert value("lake_pending_bytes") == 12
    assert value("lake_table_rows", table="bronze.messages") == 30


def test_neighbours_are_fetched_once_a_minute_and_dropped_when_idle() -> None:
    found: list[int] = []
    now = [0]
    hangs, goes_on = threading.Event(), threading.Event()

    def read() -> int:
        if len(found) == 2:
            hangs.set()
            goes_on.wait()
        found.append(len(found))
        return found[-1]

    cached = Cached(read, lambda: now[0])

    def value_at(at_ms: int) -> int | None:
        now[0] = at_ms
        return cached.get()

    assert value_at(0) is None
    cached.wait()
    assert value_at(EVERY_MS - 1) == 0
    cached.wait()
    assert found == [0]
    assert value_at(EVERY_MS) == 0
    cached.wait()
    assert value_at(2 * EVERY_MS) == 1
    assert hangs.wait(LIMIT_SECONDS)
    assert value_at(EVERY_MS + STALE_MS - 1) == 1
    assert value_at(EVERY_MS + STALE_MS) is None
    goes_on.set()
    cached.wait()
    assert value_at(EVERY_MS + STALE_MS) == 2


@pytest.mark.parametrize(
    ("part", "error"), [("history", HistoryError("it is locked")), ("alerts", OperationalError())]
)
def test_an_unreadable_part_does_not_affect_the_others(part, error, monkeypatch) -> None:
    def broken(now_ms: int) -> None:
        raise error

    monkeypatch.setitem(page.PARTS, part, broken)

    assert value("console_readable", part=part) == 0
    assert value("console_readable", part="reports") == 1


def test_promtool_finds_nothing() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here: apt-get install prometheus")
    sampled()

    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=scrape().content,
        capture_output=True,
        timeout=LIMIT_SECONDS,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
