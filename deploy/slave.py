"""A slave beside each master: deploy/up --slave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.config.properties import parse_properties
from deploy import broker_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from deploy.broker_file import BrokerSettings

NAME = "slave"
"""The process of the first broker's slave; that of broker-b has slave-b."""
PORT_STEP = 10
"""The slave listens so far above its master."""
MASTERS_OWN = (
    "storePathCommitLog",
    "haListenPort",
    "haMasterAddress",
    "adminListenAddress",
    "namesrvListenPort",
    "kvConfigPath",
)
"""Ports and paths that two brokers of one machine cannot share."""


def is_one(name: str) -> bool:
    """Tell whether a process of this name is a slave's."""
    return name == NAME or name.startswith(f"{NAME}-")


def settings(master: BrokerSettings, data: Path, name: str = NAME) -> BrokerSettings:
    """Write the slave's configuration, and ask the broker what is in force with it.

    It is the master's file but for what makes it a slave, and made anew at each start. `name` is
    its process, and its directory's.

    Raises:
        BrokerFileError: the broker refuses it.
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
    # With accounts the slave has its master's, where these stand beside the master's store.
    if master.has_accounts:
        table.setdefault("aclFile", accounts_of(master))
    lines = [f"{key}={escaped(value)}" for key, value in table.items()]
    file = data / "run" / f"{name}.conf"
    draft = file.with_suffix(".tmp")
    draft.touch(mode=0o600)
    draft.write_text(
        f"# Made from {master.file} at this start.\n" + "".join(f"{line}\n" for line in lines)
    )
    draft.rename(file)
    return broker_file.settings(file)


def ports_above(table: Mapping[str, str], other: BrokerSettings, step: int) -> dict[str, str]:
    """Return the ports of a broker that listens `step` above another of this machine."""
    above = {"listenPort": str(other.listen_port + step)}
    metrics = table.get("metricsListenPort", "").strip()
    if metrics.isdecimal() and int(metrics):
        above["metricsListenPort"] = str(int(metrics) + step)
    return above


def accounts_of(master: BrokerSettings) -> str:
    """Return where a broker's accounts are, unless aclFile says it."""
    store = master.store.rstrip("/")
    return store.rpartition("/")[0] + "/conf/plain_acl.yml"


def escaped(value: str) -> str:
    """Return a value as a properties file holds it."""
    return value.replace("\\", "\\\\")
