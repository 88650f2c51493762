"""A second broker of the set beside the first: deploy/up --slave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.config.properties import parse_properties
from deploy import broker_file

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.broker_file import BrokerSettings

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


def settings(master: BrokerSettings, data: Path) -> BrokerSettings:
    """Write the slave's configuration, and ask the broker what is in force with it.

    It is the master's file but for what makes it a slave, and made anew at each start.

    Raises:
        BrokerFileError: the broker refuses it.
    """
    table = parse_properties(master.file.read_text(errors="replace"))
    for key in MASTERS_OWN:
        table.pop(key, None)
    table |= {
        "brokerRole": "SLAVE",
        "brokerId": "1",
        "listenPort": str(master.listen_port + PORT_STEP),
        "namesrvAddr": master.namesrv,
        "embeddedNamesrv": "false",
        "storePathRootDir": str(data / "slave" / "store"),
    }
    # With accounts the slave has its master's, where these stand beside the master's store.
    if table.get("aclEnable", "").strip().lower() == "true":
        table.setdefault("aclFile", str(_accounts_of(master)))
    lines = [f"{key}={_escaped(value)}" for key, value in table.items()]
    file = data / "run" / "slave.conf"
    draft = file.with_suffix(".tmp")
    draft.touch(mode=0o600)
    draft.write_text(
        f"# Made from {master.file} at this start.\n" + "".join(f"{line}\n" for line in lines)
    )
    draft.rename(file)
    return broker_file.settings(file)


def _accounts_of(master: BrokerSettings) -> str:
    store = master.store.rstrip("/")
    return store.rpartition("/")[0] + "/conf/plain_acl.yml"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
