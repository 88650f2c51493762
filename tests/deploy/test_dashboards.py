"""deploy/grafana: dashboards that Grafana can import, and rules that fire when they should."""

from __future__ import annotations

import re
import subprocess
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.prometheus import DASHBOARDS, FOLDER, RULES, dashboard, queries, require

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_SECONDS = 120
BUILT_IN = {"__rate_interval", "__all"}
BROKER = 'cluster="c",node_id="a",instance="i"'
DISK = f'{{{BROKER},storage_type="local",storage_medium="disk"}}'
GROUP = f'{{{BROKER},consumer_group="g",topic="T",is_system="false"}}'

# Alert: its series, minute by minute (promtool's notation), and the minute when it fires.
CASES: dict[str, tuple[dict[str, str], int]] = {
    "TrebuchetBrokerGone": ({f"rocketmq_broker_permission{{{BROKER}}}": "6 6 _x20"}, 10),
    "TrebuchetBrokerRefusesSends": ({f"trebuchet_writable{{{BROKER}}}": "1 0x10"}, 5),
    "TrebuchetPutsFail": ({f"trebuchet_puts_failed_total{{{BROKER}}}": "0+9x10"}, 9),
    "TrebuchetLogDamaged": ({f"trebuchet_quarantined_ranges{{{BROKER}}}": "0 1x5"}, 3),
    "TrebuchetDiskFills": (
        {
            f"rocketmq_storage_size_bytes{DISK}": "80x20",
            f"trebuchet_disk_bytes{{{BROKER}}}": "100x20",
        },
        15,
    ),
    "TrebuchetDiskFull": (
        {
            f"rocketmq_storage_size_bytes{DISK}": "90x9",
            f"trebuchet_disk_bytes{{{BROKER}}}": "100x9",
        },
        5,
    ),
    "TrebuchetDiskFullSoon": (
        {
            f"rocketmq_storage_size_bytes{DISK}": "0+1x100",
            f"trebuchet_disk_bytes{{{BROKER}}}": "200x100",
        },
        90,
    ),
    "TrebuchetSendsSlow": (
        {
            f'trebuchet_put_latency_seconds_bucket{{{BROKER},le="0.1"}}': "0x20",
            f'trebuchet_put_latency_seconds_bucket{{{BROKER},le="1.0"}}': "0+9x20",
            f'trebuchet_put_latency_seconds_bucket{{{BROKER},le="+Inf"}}': "0+9x20",
        },
        15,
    ),
    "TrebuchetLoopLate": ({f"trebuchet_loop_late_seconds{{{BROKER}}}": "3x9"}, 5),
    "TrebuchetHalfMessageOld": (
        {f"trebuchet_half_message_age_seconds{{{BROKER}}}": "600+60x20"},
        15,
    ),
    "TrebuchetTwoMasters": (
        {
            'trebuchet_is_master{cluster="c",node_id="a",instance="i"}': "1x9",
            'trebuchet_is_master{cluster="c",node_id="a",instance="j"}': "0 1x9",
        },
        5,
    ),
    "TrebuchetFailover": (
        {f"trebuchet_epoch{{{BROKER}}}": "1 1 2x5", f"trebuchet_is_master{{{BROKER}}}": "1x9"},
        4,
    ),
    "TrebuchetReplicasMissing": (
        {
            f"trebuchet_slaves_in_sync{{{BROKER}}}": "1 0x9",
            f"trebuchet_replicas_in_sync_min{{{BROKER}}}": "2x9",
        },
        5,
    ),
    "TrebuchetSlaveGone": ({f"trebuchet_slaves{{{BROKER}}}": "1 0x9"}, 5),
    "TrebuchetSlaveBehind": ({f'trebuchet_slave_lag_seconds{{{BROKER},slave="s"}}': "60x9"}, 5),
    "TrebuchetGroupBehind": (
        {f"rocketmq_consumer_lag_latency_milliseconds{GROUP}": "400000x20"},
        15,
    ),
    "TrebuchetGroupWithoutMembers": ({f"rocketmq_consumer_lag_messages{GROUP}": "5x20"}, 15),
    "TrebuchetDeadLetters": (
        {f'rocketmq_send_to_dlq_messages_total{{{BROKER},consumer_group="g"}}': "0 0 4x9"},
        5,
    ),
    "TrebuchetCollectorSilent": ({"trebuchet_collector_up": "1 0x9"}, 5),
    "TrebuchetBrokerNotSampled": ({"trebuchet_collector_problems": "0 1x20"}, 10),
    "TrebuchetConsoleUnreadable": ({'trebuchet_console_readable{part="history"}': "0x20"}, 10),
    "TrebuchetAlertsStuck": (
        {'trebuchet_alert_message_waiting_seconds{channel="x"}': "900x20"},
        10,
    ),
    "TrebuchetAlertsGivenUp": (
        {'trebuchet_alert_messages{channel="x",state="failed"}': "0 0 1x20"},
        5,
    ),
    "TrebuchetVerdictBad": ({'trebuchet_verdict{severity="bad",rule="r",name="n"}': "1x20"}, 10),
    "TrebuchetReportFailed": ({'trebuchet_report_failed{report="r"}': "1x5"}, 2),
    "TrebuchetReportsCannotRun": (
        {"trebuchet_redis_up": "1x20", "trebuchet_pipeline_up": "0x20"},
        15,
    ),
    "TrebuchetLakeFails": (
        {"trebuchet_lake_readable": "1x20", "trebuchet_lake_failing": "1x20"},
        15,
    ),
    "TrebuchetLakeSilent": (
        {
            "trebuchet_lake_checked_timestamp_seconds": "0x40",
            "trebuchet_lake_pending_bytes": "1x40",
        },
        30,
    ),
    "TrebuchetMetricsLeftOut": ({'trebuchet_metrics_truncated{metric="m"}': "1x20"}, 15),
}
WELL = {
    f"rocketmq_broker_permission{{{BROKER}}}": "6x100",
    f"trebuchet_writable{{{BROKER}}}": "1x100",
    f"trebuchet_puts_failed_total{{{BROKER}}}": "3x100",
    f"trebuchet_quarantined_ranges{{{BROKER}}}": "0x100",
    f"rocketmq_storage_size_bytes{DISK}": "50x100",
    f"trebuchet_disk_bytes{{{BROKER}}}": "100x100",
    f"trebuchet_loop_late_seconds{{{BROKER}}}": "0x100",
    f"trebuchet_is_master{{{BROKER}}}": "1x100",
    f"trebuchet_epoch{{{BROKER}}}": "4x100",
    f"trebuchet_slaves{{{BROKER}}}": "1x100",
    f"trebuchet_slaves_in_sync{{{BROKER}}}": "1x100",
    f"trebuchet_replicas_in_sync_min{{{BROKER}}}": "2x100",
    f"rocketmq_consumer_lag_messages{GROUP}": "5x100",
    f"rocketmq_consumer_lag_latency_milliseconds{GROUP}": "900x100",
    f'rocketmq_consumer_connections{{{BROKER},consumer_group="g"}}': "1x100",
    f'rocketmq_send_to_dlq_messages_total{{{BROKER},consumer_group="g"}}': "7x100",
    "trebuchet_collector_up": "1x100",
    "trebuchet_collector_problems": "0x100",
    'trebuchet_alert_messages{channel="x",state="failed"}': "3x100",
    'trebuchet_alert_message_waiting_seconds{channel="x"}': "0x100",
    'trebuchet_report_failed{report="r"}': "0x100",
    "trebuchet_redis_up": "1x100",
    "trebuchet_pipeline_up": "1x100",
    "trebuchet_lake_readable": "1x100",
    "trebuchet_lake_failing": "0x100",
    # There are no new messages, so no recent check.
    "trebuchet_lake_checked_timestamp_seconds": "0x100",
    "trebuchet_lake_pending_bytes": "0x100",
}


def rules() -> list[dict[str, Any]]:
    read = yaml.safe_load(RULES.read_text())
    return [rule for group in read["groups"] for rule in group["rules"]]


def promtool(*words: str) -> str:
    done = subprocess.run(
        [require("promtool"), *words], capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def case(series: dict[str, str], minute: int, firing: list[str]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minute}m",
                "exp_samples": [
                    {"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing
                ],
            }
        ],
    }


def test_promtool_finds_nothing() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES))
    assert "SUCCESS" in promtool("check", "config", str(FOLDER / "prometheus.yml"))


def test_each_rule_fires_when_it_should_and_none_fires_otherwise(tmp_path: Path) -> None:
    assert {rule["alert"] for rule in rules()} == CASES.keys()
    # A disk that is full also fills.
    others = {"TrebuchetDiskFull": ["TrebuchetDiskFills"]}
    tests = [
        case(series, minute, [name])
        for name, (series, minute) in CASES.items()
        if name not in others
    ]
    tests += [case(*CASES[name], [name]) for name in others]
    tests.append(case(WELL, 90, []))
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}))

    promtool("test", "rules", str(file))


def test_each_rule_has_an_urgency_and_advice() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["annotations"]["description"].endswith("."), rule["alert"]


def test_there_is_a_dashboard_for_each_subject() -> None:
    boards = [dashboard(path) for path in DASHBOARDS]

    assert [path.stem for path in DASHBOARDS] == [
        "appliance",
        "broker",
        "cluster",
        "group",
        "topic",
    ]
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == 5


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_runs_on_any_data_source_and_explains_each_panel(path: Path) -> None:
    board = dashboard(path)
    variables = {each["name"] for each in board["templating"]["list"]}
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]

    assert "datasource" in variables
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for source in (panel["datasource"], *(each["datasource"] for each in panel["targets"])):
            assert source == {"type": "prometheus", "uid": "${datasource}"}
    for title, expression in queries(board):
        named = set(re.findall(r"\$\{?(\w+)", expression)) - BUILT_IN
        assert named <= variables, title


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_no_panel_overlaps_another(path: Path) -> None:
    places = [panel["gridPos"] for panel in dashboard(path)["panels"]]

    for place in places:
        assert place["x"] + place["w"] <= 24
    for one, other in combinations(places, 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        ), (one, other)
