"""deploy/up --brokers: more masters, their configurations and later starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.config.properties import parse_properties, replace_values
from broker_core.protocol import java_json
from deploy.brokers import broker_file, cluster
from deploy.commands import up as appliance
from deploy.machine import data_directory
from deploy.processes import programs
from deploy.settings import options
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.brokers.broker_file import BrokerSettings

TOPICS = {
    "dataVersion": {"counter": 3},
    "topicConfigTable": {
        "orders": {"topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4},
        "broker-a": {"topicName": "broker-a", "readQueueNums": 1, "writeQueueNums": 1},
    },
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path


def first(data: Path, **keys: object) -> BrokerSettings:
    """Return the first broker of an appliance whose configuration has these extra keys."""
    file = data / "broker.conf"
    table = {"brokerName": "broker-a", "listenPort": 20911, "storePathRootDir": data / "store"}
    lines = [f"{key}={value}\n" for key, value in (table | keys).items()]
    file.write_text("".join(lines))
    return broker_file.settings(file)


def started(data: Path, *arguments: str, **keys: object) -> dict[str, BrokerSettings]:
    request = options.parse(arguments, {"TREBUCHET_DATA": str(data)})
    return cluster.settings(first(data, **keys), request)


@pytest.mark.parametrize(
    ("arguments", "keys", "expected"),
    [
        ([], {}, ["broker"]),
        (["--brokers", "1"], {"brokers": 2}, ["broker"]),
        (["--brokers", "3"], {}, ["broker", "broker-b", "broker-c"]),
        ([], {"brokers": 2}, ["broker", "broker-b"]),
        (["--slave"], {"brokers": 2}, ["broker", "broker-b", "slave", "slave-b"]),
    ],
)
def test_the_option_takes_precedence_over_the_key(
    data: Path, arguments: list[str], keys: dict[str, object], expected: list[str]
) -> None:
    assert list(started(data, *arguments, **keys)) == expected


def test_each_has_its_own_name_ports_and_files(data: Path) -> None:
    keys = {
        "haListenPort": 20950,
        "metricsListenPort": 5557,
        "grpcListenPort": 8081,
        "storePathCommitLog": data / "log",
    }

    found = started(data, "--brokers", "2", "--slave", flushDiskType="SYNC_FLUSH", **keys)

    tables = {name: parse_properties(one.file.read_text()) for name, one in found.items()}
    assert [one.name for one in found.values()] == ["broker-a", "broker-b", "broker-a", "broker-b"]
    assert [one.listen_port for one in found.values()] == [20911, 20931, 20921, 20941]
    assert found["broker-b"].ha_port == 20932
    metrics = [table["metricsListenPort"] for table in tables.values()]
    assert metrics == ["5557", "5577", "5567", "5587"]
    assert [one.grpc_port for one in found.values()] == [8081, 8101, 8091, 8111]
    assert len({one.commit_log for one in found.values()}) == 4
    assert found["broker-b"].store == f"{data}/brokers/broker-b/store"
    assert {table["flushDiskType"] for table in tables.values()} == {"SYNC_FLUSH"}
    assert tables["broker-b"]["namesrvAddr"] == found["broker"].namesrv
    assert {found[name].namesrv_port for name in ("broker-b", "slave", "slave-b")} == {None}
    assert found["broker-b"].file.stat().st_mode & 0o077 == 0
    assert tables["slave-b"]["brokerRole"] == "SLAVE"


def test_each_broker_has_a_grpc_port_unless_its_file_says_otherwise(data: Path) -> None:
    def ports(**keys: object) -> list[int]:
        return [
            one.grpc_port for one in started(data, "--brokers", "2", "--slave", **keys).values()
        ]

    assert ports() == [8081, 8101, 8091, 8111]
    assert ports(grpcListenPort=9081) == [9081, 8101, 9091, 8111]


@pytest.mark.parametrize(
    "keys", [{"grpcListenPort": 0}, {"aclEnable": "true", "accessValidators": "own"}]
)
def test_no_broker_has_a_grpc_port_that_the_first_lacks(
    data: Path, keys: dict[str, object]
) -> None:
    found = started(data, "--brokers", "2", "--slave", **keys)

    assert {one.grpc_port for one in found.values()} == {0}


def test_a_masters_file_from_before_grpc_gets_a_port_next_to_the_firsts(data: Path) -> None:
    own = started(data, "--brokers", "2")["broker-b"].file
    lines = own.read_text().splitlines(keepends=True)
    own.write_text("".join(line for line in lines if not line.startswith("grpcListenPort")))

    found = started(data, "--brokers", "2")

    assert found["broker-b"].grpc_port == 8101
    (program,) = [
        each
        for each in programs.chosen(options.parse([], {}), found, None, with_queue=False)
        if each.name == "broker-b"
    ]
    assert "grpcListenPort=8101" in program.command


def test_a_broker_with_another_name_has_followers_of_that_name(data: Path) -> None:
    found = started(data, "--brokers", "2", brokerName="orders")

    assert found["broker-b"].name == "orders-b"


def test_changes_in_a_masters_own_file_stay_and_the_name_server_follows(
    data: Path,
) -> None:
    own = started(data, "--brokers", "2")["broker-b"].file
    own.write_text(
        replace_values(own.read_text(), {"fileReservedTime": "7", "listenPort": "20971"})
    )

    found = started(data, "--brokers", "2", namesrvListenPort=20976)["broker-b"]

    table = parse_properties(own.read_text())
    assert (table["fileReservedTime"], found.listen_port) == ("7", 20971)
    assert table["namesrvAddr"] == found.namesrv == "127.0.0.1:20976"


def test_a_new_master_has_the_firsts_topics_and_groups_and_keeps_later_ones_of_its_own(
    data: Path,
) -> None:
    theirs = data / "store" / "config"
    theirs.mkdir(parents=True)
    (theirs / "topics.json").write_bytes(java_json.encode(TOPICS))
    (theirs / "subscriptionGroup.json").write_bytes(b"damaged")

    started(data, "--brokers", "2")

    ours = data / "brokers" / "broker-b" / "store" / "config"
    table = java_json.decode((ours / "topics.json").read_bytes())
    assert list(table["topicConfigTable"]) == ["orders"]
    assert not (ours / "subscriptionGroup.json").exists()

    (theirs / "topics.json").write_bytes(b"{}")
    started(data, "--brokers", "2")

    assert java_json.decode((ours / "topics.json").read_bytes()) == table


def test_fewer_masters_leave_the_others_alone_and_list_leftovers(data: Path) -> None:
    started(data, "--brokers", "3")
    kept = {path: path.read_bytes() for path in (data / "brokers").rglob("broker.conf")}

    found = started(data)

    alone = cluster.not_started(found, data)
    assert alone == ["broker-b", "broker-c"]
    text = cluster.warning_of(alone, data)
    assert "broker-b, broker-c" in text
    assert str(data / "brokers") in text
    assert "brokers=3" in text
    assert {path: path.read_bytes() for path in kept} == kept
    assert cluster.not_started(started(data, "--brokers", "3"), data) == []


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"brokerRole": "SLAVE", "brokerId": 1}, "configures a slave"),
        ({"adminListenAddress": "127.0.0.1:20921"}, "adminListenAddress"),
        ({"listenPort": 65520}, "listenPort"),
        ({"brokers": 17}, "brokers"),
        ({"brokers": 0}, "brokers"),
    ],
)
def test_a_repeated_single_value_is_rejected_with_an_explanation(
    data: Path, keys: dict[str, object], words: str
) -> None:
    with pytest.raises(broker_file.BrokerFileError, match=words):
        started(data, **({"brokers": 2} | keys))


@pytest.mark.parametrize(
    ("key", "value"), [("brokerName", "broker-a"), ("brokerClusterName", "Another")]
)
def test_two_masters_of_one_name_or_cluster_are_rejected(data: Path, key: str, value: str) -> None:
    own = started(data, "--brokers", "2")["broker-b"].file
    own.write_text(replace_values(own.read_text(), {key: value}))

    with pytest.raises(broker_file.BrokerFileError, match=key) as error:
        started(data, "--brokers", "2")

    assert value in str(error.value)
    assert str(own) in str(error.value)


def test_a_port_of_two_masters_is_rejected_and_both_are_named(data: Path) -> None:
    port, other = free_port(), free_port()
    found = started(
        data, "--brokers", "2", listenPort=port, namesrvListenPort=other, grpcListenPort=0
    )
    own = found["broker-b"].file
    own.write_text(replace_values(own.read_text(), {"listenPort": str(port)}))
    again = started(
        data, "--brokers", "2", listenPort=port, namesrvListenPort=other, grpcListenPort=0
    )

    with pytest.raises(
        data_directory.NotStartedError, match=rf"{port}.*broker-b.*also.*listenPort"
    ):
        appliance.require_free_ports(options.parse([], {}), again)


@pytest.mark.parametrize("text", ["0", "17", "two", ""])
def test_an_unreasonable_number_is_rejected(text: str) -> None:
    with pytest.raises(options.OptionError, match="--brokers"):
        options.parse(["--brokers", text], {})


def test_all_processes_run_before_the_console_which_queries_each(data: Path) -> None:
    request = options.parse(["--brokers", "2", "--slave"], {"TREBUCHET_DATA": str(data)})
    found = cluster.settings(first(data), request)

    chosen = programs.chosen(request, found, None, with_queue=False)
    addresses = programs.variables(request, found, "", "spark")["TREBUCHET_BROKERS"].split(";")

    names = [one.name for one in sorted(chosen, key=lambda one: one.priority)]
    assert names[:5] == ["broker", "broker-b", "slave", "slave-b", "web"]
    assert [one.name for one in chosen if one.is_broker] == list(found)
    assert addresses[:4] == [f"127.0.0.1:{one.listen_port}" for one in found.values()]
