"""deploy/up --slave: the second broker's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.config.properties import parse_properties
from deploy.brokers import broker_file, slave
from deploy.processes import programs
from deploy.settings import options

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.brokers.broker_file import BrokerSettings


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path


def master(data: Path, text: str = "") -> BrokerSettings:
    file = data / "broker.conf"
    file.write_text(f"brokerName=b\nlistenPort=20911\nstorePathRootDir={data}/store\n{text}")
    return broker_file.settings(file)


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ([], {}, False),
        (["--slave"], {}, True),
        ([], {"TREBUCHET_SLAVE": "1"}, True),
        ([], {"TREBUCHET_SLAVE": "false"}, False),
    ],
)
def test_it_is_requested(arguments: list[str], environment: dict[str, str], expected: bool) -> None:
    assert options.parse(arguments, environment).has_slave is expected


def test_it_is_a_slave_of_the_same_name_with_its_own_ports_and_files(data: Path) -> None:
    first = master(data, "haListenPort=20950\nfileReservedTime=7\nadminListenAddress=/run/x\n")

    second = slave.settings(first, data)

    table = parse_properties(second.file.read_text())
    assert (table["brokerName"], table["brokerRole"], table["brokerId"]) == ("b", "SLAVE", "1")
    assert table["namesrvAddr"] == first.namesrv
    assert table["fileReservedTime"] == "7"
    assert not {"haListenPort", "adminListenAddress"} & table.keys()
    assert second.listen_port == first.listen_port + slave.PORT_STEP
    assert second.namesrv_port is None
    assert second.store == f"{data}/slave/store"
    assert second.file.stat().st_mode & 0o077 == 0


def test_a_slave_has_the_accounts_of_its_master(data: Path) -> None:
    second = slave.settings(master(data, "aclEnable=true\n"), data)

    assert parse_properties(second.file.read_text())["aclFile"] == f"{data}/conf/plain_acl.yml"


def test_an_out_of_range_port_is_rejected_with_an_explanation(data: Path) -> None:
    with pytest.raises(broker_file.BrokerFileError, match="listenPort"):
        slave.settings(master(data, "listenPort=65530\nnamesrvListenPort=20950\n"), data)


def test_it_runs_between_the_broker_and_the_console_which_queries_it(data: Path) -> None:
    parsed = options.parse(["--slave"], {"TREBUCHET_DATA": str(data)})
    first = master(data)
    second = slave.settings(first, data)

    own = {"broker": first, "slave": second}
    chosen = programs.chosen(parsed, own, None, with_queue=False)
    variables = programs.variables(parsed, own, "", "spark")

    names = [one.name for one in sorted(chosen, key=lambda one: one.priority)]
    assert names[:3] == ["broker", "slave", "web"]
    assert f"{second.advertised}:{second.listen_port}" in variables["TREBUCHET_BROKERS"]
