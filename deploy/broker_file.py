"""The broker's effective configuration, as the appliance needs it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.config.loading import exposed_secrets
from broker_core.config.properties import parse_properties
from deploy.ports import reachable_host
from deploy.terminal import complain
from deploy.virtualenv import ROOT
from deploy.words import told

if TYPE_CHECKING:
    from pathlib import Path

TEMPLATE = ROOT / "deploy" / "broker.conf"
PRINT_TIMEOUT_S = 60


class BrokerFileError(Exception):
    """The broker refuses its configuration; the text is the broker's."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What the other processes must know about the broker."""

    file: Path
    store: str
    commit_log: str
    bind_address: str
    advertised: str
    listen_port: int
    ha_port: int
    namesrv: str
    console_namesrv: str
    """The name server for the console: the administration listener, where there is one, since its
    routes lead to itself."""
    namesrv_port: int | None
    """The embedded name server's port; None when the configuration names others."""
    name: str
    """brokerName."""
    cluster: str
    """brokerClusterName."""
    brokers: int
    """How many masters the key `brokers` asks for."""
    is_slave: bool
    has_accounts: bool
    admin_listener: str
    """adminListenAddress."""

    @property
    def ports(self) -> list[tuple[str, int, str]]:
        """What it listens on: key, port, purpose."""
        used = [
            ("listenPort", self.listen_port, "broker"),
            ("haListenPort", self.ha_port, "replication"),
        ]
        if self.namesrv_port is not None:
            used.append(("namesrvListenPort", self.namesrv_port, "name server"))
        return used


def effective_file(given: Path | None, data: Path) -> Path:
    """Return the file to start the broker with; unless it sets one, its store is inside `data`.

    Raises:
        BrokerFileError: the given file cannot be read.
    """
    if given is None:
        file = data / "broker.conf"
        if not file.exists():
            _write_with_store(file, TEMPLATE.read_text(), data)
        return file
    try:
        text = given.read_text(errors="replace")
    except OSError as error:
        raise BrokerFileError(
            told(
                "The broker's configuration {file} cannot be read: {why}.",
                file=given,
                why=error.strerror,
            )
        ) from error
    if names_store(text):
        return given
    # The broker sees the copy alone, which is private.
    for warning in exposed_secrets(given, parse_properties(text)):
        complain(f"WARNING {warning}")
    # Without it the broker takes RocketMQ's default, a directory in the user's home.
    file = data / "run" / "broker.conf"
    _write_with_store(file, f"# Copied from {given} at this start.\n{text}", data)
    return file


def names_store(text: str) -> bool:
    """Return whether a configuration says where the store is."""
    return "storePathRootDir" in parse_properties(text)


def store_beside(data: Path) -> Path:
    """Return where a broker's store is whose configuration does not say it."""
    return data / "store"


def settings(file: Path) -> BrokerSettings:
    """Ask the broker what is in force.

    Raises:
        BrokerFileError: it refuses the file.
    """
    done = subprocess.run(
        [sys.executable, "-m", "broker_core", "-c", str(file), "-p"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PRINT_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise BrokerFileError(done.stderr.strip() or told("The broker refuses {file}.", file=file))
    table = parse_properties(done.stdout)
    embedded = table["embeddedNamesrv"] == "true"
    namesrv_port = int(table["namesrvListenPort"]) if embedded else None
    address = table["bindAddress"]
    namesrv = f"{reachable_host(address)}:{namesrv_port}" if embedded else table["namesrvAddr"]
    listener = table["adminListenAddress"]
    # The console speaks TCP alone; and only an embedded name server is served there, too.
    is_led = embedded and listener and not listener.startswith("/")
    return BrokerSettings(
        file=file,
        store=table["storePathRootDir"],
        commit_log=table["storePathCommitLog"],
        bind_address=address,
        advertised=table["brokerIP1"],
        listen_port=int(table["listenPort"]),
        ha_port=int(table["haListenPort"]),
        namesrv=namesrv,
        console_namesrv=listener if is_led else namesrv,
        namesrv_port=namesrv_port,
        name=table["brokerName"],
        cluster=table["brokerClusterName"],
        brokers=int(table["brokers"]),
        is_slave=table["brokerRole"] == "SLAVE" or table["brokerId"] != "0",
        has_accounts=table["aclEnable"] == "true",
        admin_listener=listener,
    )


def _write_with_store(file: Path, text: str, data: Path) -> None:
    store = str(store_beside(data)).replace("\\", "\\\\")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_suffix(".tmp")
    draft.write_text(f"{text.rstrip()}\n\n# --- Files ---\nstorePathRootDir={store}\n")
    draft.rename(file)
