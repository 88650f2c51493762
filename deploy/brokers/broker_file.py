"""The broker's effective configuration, for use by the appliance."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.config.lists import PLAIN_ACL
from broker_core.config.loading import exposed_secrets
from broker_core.config.properties import parse_properties
from deploy.install.virtualenv import ROOT
from deploy.machine.ports import reachable_host
from deploy.terminal.output import complain
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from pathlib import Path

TEMPLATE = ROOT / "deploy" / "broker.conf"
PRINT_TIMEOUT_S = 60
GRPC_KEY = "grpcListenPort"
GRPC_PORT = 8081
"""The default port for RocketMQ 5 clients."""


class BrokerFileError(Exception):
    """The broker rejects its configuration; the text is the broker's."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The broker settings that the other processes need."""

    file: Path
    store: str
    commit_log: str
    bind_address: str
    advertised: str
    listen_port: int
    ha_port: int
    grpc_port: int
    """The port for RocketMQ 5 clients; 0 if it is closed."""
    namesrv: str
    console_namesrv: str
    """The name server for the console: the administration listener if set, because its routes lead
    to itself.
    """
    namesrv_port: int | None
    """The embedded name server's port; None if the configuration names others."""
    name: str
    """brokerName."""
    cluster: str
    """brokerClusterName."""
    brokers: int
    """The number of masters in the key `brokers`."""
    is_slave: bool
    has_accounts: bool
    admin_listener: str
    """adminListenAddress."""

    @property
    def ports(self) -> list[tuple[str, int, str]]:
        """The listening ports: key, port, purpose."""
        used = [
            ("listenPort", self.listen_port, "broker"),
            ("haListenPort", self.ha_port, "replication"),
        ]
        if self.grpc_port:
            used.append((GRPC_KEY, self.grpc_port, "gRPC clients"))
        if self.namesrv_port is not None:
            used.append(("namesrvListenPort", self.namesrv_port, "name server"))
        return used


def effective_file(given: Path | None, data: Path) -> Path:
    """Return the configuration file to start the broker with; the store defaults to one inside
    `data`.

    Raises:
        BrokerFileError: the given file isn't readable.
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
            translated(
                "Can't read the broker's configuration {file}: {why}.",
                file=given,
                why=error.strerror,
            )
        ) from error
    if names_store(text):
        return given
    # Check the original, because the broker sees only the copy, which is private.
    for warning in exposed_secrets(given, parse_properties(text)):
        complain(f"WARNING {warning}")
    # By default, the broker uses RocketMQ's directory in the user's home.
    file = data / "run" / "broker.conf"
    _write_with_store(file, f"# Copied from {given} at this start.\n{text}", data)
    return file


def names_store(text: str) -> bool:
    """Return whether a configuration sets the store directory."""
    return "storePathRootDir" in parse_properties(text)


def default_store(data: Path) -> Path:
    """Return the store directory of a broker whose configuration doesn't set it."""
    return data / "store"


def command(file: Path, grpc_port: int) -> list[str]:
    """Return the command that runs a broker; `grpc_port` applies if the file doesn't set one."""
    default = f"{GRPC_KEY}={grpc_port}"
    return [sys.executable, "-m", "broker_core", "--default", default, "-c", str(file)]


def settings(file: Path, grpc_port: int = GRPC_PORT) -> BrokerSettings:
    """Ask the broker for its effective settings; `grpc_port` applies if the file doesn't set one.

    Raises:
        BrokerFileError: the broker rejects the file.
    """
    done = subprocess.run(
        [*command(file, _possible(file, grpc_port)), "-p"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PRINT_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise BrokerFileError(
            done.stderr.strip() or translated("The broker rejected {file}.", file=file)
        )
    table = parse_properties(done.stdout)
    embedded = table["embeddedNamesrv"] == "true"
    namesrv_port = int(table["namesrvListenPort"]) if embedded else None
    address = table["bindAddress"]
    namesrv = f"{reachable_host(address)}:{namesrv_port}" if embedded else table["namesrvAddr"]
    listener = table["adminListenAddress"]
    # The console supports only TCP, and only an embedded name server is also available there.
    is_led = embedded and listener and not listener.startswith("/")
    return BrokerSettings(
        file=file,
        store=table["storePathRootDir"],
        commit_log=table["storePathCommitLog"],
        bind_address=address,
        advertised=table["brokerIP1"],
        listen_port=int(table["listenPort"]),
        ha_port=int(table["haListenPort"]),
        grpc_port=int(table[GRPC_KEY]),
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


def _possible(file: Path, grpc_port: int) -> int:
    """Return the port, or 0 if the broker would refuse it because of its access validators."""
    try:
        validators = parse_properties(file.read_text(errors="replace")).get("accessValidators")
    except OSError:
        # The broker reports the problem.
        return grpc_port
    return grpc_port if validators in (None, "", PLAIN_ACL) else 0


def _write_with_store(file: Path, text: str, data: Path) -> None:
    store = str(default_store(data)).replace("\\", "\\\\")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_suffix(".tmp")
    draft.write_text(f"{text.rstrip()}\n\n# --- Files ---\nstorePathRootDir={store}\n")
    draft.rename(file)
