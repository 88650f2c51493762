"""The brokers of an appliance: the first, and additional masters (deploy/up --brokers N).

A broker has a single writer, so a machine with several cores runs several masters of one cluster.
"""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING

from broker_core.config.broker import BROKERS_MAX
from broker_core.config.properties import parse_properties, replace_values
from broker_core.protocol import java_json
from deploy.brokers import broker_file, slave
from deploy.brokers.broker_file import BrokerFileError
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deploy.brokers.broker_file import BrokerSettings
    from deploy.settings.options import Options

FIRST = "broker"
"""The process of the broker in the configuration file; it includes the name server."""
PORT_STEP = 2 * slave.PORT_STEP
"""Distance between the ports of two masters; their slaves use the ports between them."""
TABLES = {"topics.json": "topicConfigTable", "subscriptionGroup.json": "subscriptionGroupTable"}
"""The tables that a new broker needs before clients find it, by file."""
BROKER_FILE = "broker.conf"


def settings(first: BrokerSettings, asked: Options) -> dict[str, BrokerSettings]:
    """Return the settings of each broker by the name of its process, the first one first.

    Each additional master has its own directory in the data directory. The configuration there is
    created from the first broker's, with its topics and groups, and independent from then on.

    Raises:
        BrokerFileError: a broker rejects its configuration, or they can't form one cluster.
    """
    found = {FIRST: first}
    count = first.brokers if asked.brokers is None else asked.brokers
    if count > 1:
        _require_several(first)
    for name in _names()[: count - 1]:
        found[name] = _further(name, first, asked.data, len(found))
    _require_one_cluster(found)
    if asked.has_slave:
        for name, master in list(found.items()):
            own = slave.NAME + name.removeprefix(FIRST)
            found[own] = slave.settings(master, asked.data, own)
    return found


def masters(brokers: Mapping[str, BrokerSettings]) -> dict[str, BrokerSettings]:
    """Return the brokers that clients can send to."""
    return {name: one for name, one in brokers.items() if not slave.is_slave_process(name)}


def not_started(brokers: Mapping[str, BrokerSettings], data: Path) -> list[str]:
    """Return the masters that have messages here but aren't started, by directory."""
    return [
        name
        for name in _names()
        if name not in brokers and (_directory(name, data) / BROKER_FILE).exists()
    ]


def warning_of(names: list[str], data: Path) -> str:
    """Return the warning about masters that aren't started."""
    return translated(
        "WARNING not started: {names}. Their messages stay in {place} and can't be read until "
        "you start them again with brokers={count}.",
        names=", ".join(names),
        place=data / "brokers",
        count=_names().index(names[-1]) + 2,
    )


def _names() -> list[str]:
    return [f"{FIRST}-{letter}" for letter in ascii_lowercase[1:BROKERS_MAX]]


def _directory(name: str, data: Path) -> Path:
    return data / "brokers" / name


def _further(name: str, first: BrokerSettings, data: Path, number: int) -> BrokerSettings:
    directory = _directory(name, data)
    file = directory / BROKER_FILE
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    naming = {"namesrvAddr": first.namesrv, "embeddedNamesrv": "false"}
    if file.exists():
        # The first broker may have moved; everything else belongs to this broker.
        text = file.read_text(errors="replace")
        table = parse_properties(text)
        if {key: table.get(key) for key in naming} != naming:
            _write(file, replace_values(text, naming))
    else:
        _copy_tables(first, _name_of(name, first), directory / "store")
        _write(file, _first_text(name, first, directory, number) + _lines(naming))
    grpc_port = first.grpc_port + number * PORT_STEP if first.grpc_port else 0
    return broker_file.settings(file, grpc_port)


def _first_text(name: str, first: BrokerSettings, directory: Path, number: int) -> str:
    table = parse_properties(first.file.read_text(errors="replace"))
    for key in (*slave.MASTERS_OWN, "brokers", "namesrvAddr", "embeddedNamesrv"):
        table.pop(key, None)
    if first.has_accounts:
        table.setdefault("aclFile", slave.accounts_of(first))
    table |= slave.ports_above(table, first, number * PORT_STEP)
    table |= {
        "brokerName": _name_of(name, first),
        "storePathRootDir": str(directory / "store"),
    }
    head = f"# Created once from {first.file}; later changes to that file don't apply here."
    return f"{head}\n{_lines(table)}"


def _name_of(name: str, first: BrokerSettings) -> str:
    """Return the brokerName of an additional master: broker-b next to broker-a, x-b next to x."""
    return f"{first.name.removesuffix('-a')}{name.removeprefix(FIRST)}"


def _copy_tables(first: BrokerSettings, own_name: str, store: Path) -> None:
    """Copy the first broker's topics and groups to a new broker, if they are readable."""
    for file, key in TABLES.items():
        ours = store / "config" / file
        theirs = Path(first.store) / "config" / file
        if ours.exists() or not theirs.exists():
            continue
        try:
            table = java_json.decode(theirs.read_bytes())
            entries = dict(table[key])
        except (OSError, ValueError, TypeError, KeyError):
            # The first broker reports the problem itself, and has a backup.
            continue
        # Each broker creates a topic with its own name.
        for name in (first.name, own_name):
            entries.pop(name, None)
        ours.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        ours.write_bytes(java_json.encode_pretty({**table, key: entries}))


def _write(file: Path, text: str) -> None:
    draft = file.with_suffix(".tmp")
    # The file may contain secrets from the first broker's configuration.
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.rename(file)


def _lines(table: dict[str, str]) -> str:
    return "".join(f"{key}={slave.escaped(value)}\n" for key, value in table.items())


def _require_several(first: BrokerSettings) -> None:
    if first.is_slave:
        raise BrokerFileError(
            translated(
                "Several brokers (brokers) must be masters, but {file} configures a slave.",
                file=first.file,
            )
        )
    if first.admin_listener:
        raise BrokerFileError(
            translated(
                "Several brokers (brokers) can't be combined with adminListenAddress, which "
                "reaches only one of them. Remove one of the two from {file}.",
                file=first.file,
            )
        )


def _require_one_cluster(brokers: dict[str, BrokerSettings]) -> None:
    names: dict[str, BrokerSettings] = {}
    first = brokers[FIRST]
    for one in brokers.values():
        other = names.setdefault(one.name, one)
        if other is not one:
            raise BrokerFileError(
                translated(
                    "brokerName is {name} in both {file} and {other}. Each master needs its "
                    "own name.",
                    name=one.name,
                    file=one.file,
                    other=other.file,
                )
            )
        if one.cluster != first.cluster:
            raise BrokerFileError(
                translated(
                    "brokerClusterName is {cluster} in {file} and {other} in {first}. Brokers "
                    "that run together must be in one cluster.",
                    cluster=one.cluster,
                    file=one.file,
                    other=first.cluster,
                    first=first.file,
                )
            )
