"""A slave for each master: deploy/up --slave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.config.properties import parse_properties
from deploy.brokers import broker_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from deploy.brokers.broker_file import BrokerSettings

NAME = "slave"
"""The process of the first broker's slave; broker-b's slave is slave-b."""
PORT_STEP = 10
"""The distance of the slave's ports from its master's."""
MASTERS_OWN = (
    "storePathCommitLog",
    "haListenPort",
    "haMasterAddress",
    "adminListenAddress",
    "namesrvListenPort",
    "kvConfigPath",
)
"""Ports and paths that two brokers on one machine can't share."""


def is_slave_process(name: str) -> bool:
    """Return whether a process of this name is a slave."""
    return name == NAME or name.startswith(f"{NAME}-")


def settings(master: BrokerSettings, data: Path, name: str = NAME) -> BrokerSettings:
    """Write the slave's configuration, and ask the broker for the effective settings.

    It is the master's file with the changes for a slave, written at each start. `name` is the name
    of its process and directory.

    Raises:
        BrokerFileError: the broker rejects the configuration.
    """
    table = parse_properties(master.file.read_text(errors="replace"))
    for key in MASTERS_OWN:
        table.pop(key, None)
    table |= ports_above(table, master, PORT_STEP)
    table |= {
        "brokerRole": "SLAVE",
        "brokerId": "1",
        "namesrvAddr": master.namesrv,
        "embeddedNamesrv": "false",
        "storePathRootDir": str(data / name / "store"),
    }
    # The slave uses its master's accounts, if they are next to the master's store.
    if master.has_accounts:
        table.setdefault("aclFile", accounts_of(master))
    lines = [f"{key}={escaped(value)}" for key, value in table.items()]
    file = data / "run" / f"{name}.conf"
    draft = file.with_suffix(".tmp")
    draft.touch(mode=0o600)
    draft.write_text(
        f"# Created from {master.file} at this start.\n" + "".join(f"{line}\n" for line in lines)
    )
    draft.rename(file)
    return broker_file.settings(file, 0)


def ports_above(table: Mapping[str, str], other: BrokerSettings, step: int) -> dict[str, str]:
    """Return the ports of a broker that listens `step` above another on this machine."""
    above = {"listenPort": str(other.listen_port + step)}
    if other.grpc_port:
        above[broker_file.GRPC_KEY] = str(other.grpc_port + step)
    metrics = table.get("metricsListenPort", "").strip()
    if metrics.isdecimal() and int(metrics):
        above["metricsListenPort"] = str(int(metrics) + step)
    return above


def accounts_of(master: BrokerSettings) -> str:
    """Return the default path of a broker's accounts, without aclFile."""
    store = master.store.rstrip("/")
    return store.rpartition("/")[0] + "/conf/plain_acl.yml"


def escaped(value: str) -> str:
    """Return a value escaped for a properties file."""
    return value.replace("\\", "\\\\")
