"""A name server and a set of brokers, each in its own process, on free loopback ports."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.support import raw_remoting
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.ports import accepts, free_port
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

GET_REPLICATION_STATE, PROMOTE_BROKER = 30004, 30005
GET_ROUTEINFO_BY_TOPIC = 105
NAME = "set-a"
CAUGHT_UP_SECONDS = 60.0


class ProcessSet:
    """A name server and brokers, which are killed when the block ends."""

    namesrv: BrokerProcess
    brokers: list[BrokerProcess]

    def __exit__(self, *_: object) -> None:
        for broker in [*self.brokers, self.namesrv]:
            broker.kill()

    @property
    def namesrv_address(self) -> str:
        return f"127.0.0.1:{self.namesrv.port}"

    def master_in_route(self, topic: str) -> int | None:
        """Return the port of the master in the route, or None if the route has no master."""
        with RawClient(self.namesrv.port) as client:
            place = master_of(client, topic)
        return None if place is None else place[1]


class BrokerSet(ProcessSet):
    """A master (`brokers[0]`), slaves, and a name server that outlives them.

    Promotions change roles: `master` is the current master.
    """

    def __init__(
        self, directory: Path, keys: Mapping[str, object] | None = None, *, size: int = 2
    ) -> None:
        self.directory = directory
        keys = keys or {}
        self.namesrv = BrokerProcess(
            directory / "namesrv", namesrvAddr="", kvConfigPath=directory / "namesrv/kv.json"
        )
        self.namesrv.module = ["broker_core", "namesrv"]
        ports = [free_port() for _ in range(size)]
        self.brokers: list[BrokerProcess] = []
        for number in range(size):
            role = keys.get("brokerRole", "ASYNC_MASTER") if number == 0 else "SLAVE"
            table = {
                **keys,
                "brokerName": NAME,
                "brokerId": number,
                "brokerRole": role,
                "listenPort": ports[number],
                "namesrvAddr": f"127.0.0.1:{self.namesrv.port}",
            }
            broker = BrokerProcess(directory / f"broker-{number}", **table)
            broker.port = ports[number]
            self.brokers.append(broker)

    def __enter__(self) -> Self:
        self.namesrv.start()
        for broker in self.brokers:
            broker.launch()
        until(lambda: all(map(is_up, self.brokers)), "all brokers to listen", seconds=120.0)
        return self

    def state(self, broker: BrokerProcess) -> dict[str, Any]:
        """Return a broker's role, epochs and log state, or an empty dict if it doesn't answer."""
        return replication_state(broker.port, NAME)

    def role(self, broker: BrokerProcess) -> str:
        return str(self.state(broker).get("brokerRole", ""))

    def until_same(self, one: BrokerProcess, other: BrokerProcess) -> int:
        """Wait until two brokers have the same epochs and log length; return that length."""

        def is_same() -> bool:
            ours, theirs = self.state(one), self.state(other)
            return bool(ours) and all(
                ours[key] == theirs.get(key) for key in ("maxOffset", "epochs")
            )

        try:
            until(is_same, "both logs to be equal", seconds=CAUGHT_UP_SECONDS)
        except AssertionError as error:
            raise AssertionError(
                f"{error}: {self.state(one)} {self.state(other)}\n{one.words()[-3000:]}\n---\n"
                f"{other.words()[-3000:]}"
            ) from None
        return int(self.state(one)["maxOffset"])

    def until_role(self, broker: BrokerProcess, role: str) -> None:
        """Wait until a broker has the given role."""
        try:
            until(lambda: self.role(broker) == role, f"the broker to be {role}", seconds=240.0)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{broker.words()[-4000:]}") from None


def master_of(namesrv: RawClient, topic: str) -> tuple[str, int] | None:
    """Return host and port of the first master in a topic's route, or None without a master."""
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    answer = namesrv.ask(GET_ROUTEINFO_BY_TOPIC, fields)
    if answer.code != raw_remoting.SUCCESS:
        return None
    for data in json.loads(answer.body)["brokerDatas"]:
        address = data["brokerAddrs"].get("0")
        if address is not None:
            host, _, port = address.rpartition(":")
            return host, int(port)
    return None


def replication_state(port: int, broker_name: str, *, host: str = "127.0.0.1") -> dict[str, Any]:
    """Return a broker's role, epochs and log state, or an empty dict if it doesn't answer."""
    question = {"clusterName": "DefaultCluster", "brokerName": broker_name, "brokerAddr": ""}
    try:
        with RawClient(port, host=host) as client:
            answer = client.ask(GET_REPLICATION_STATE, {}, json.dumps(question).encode())
    except OSError:
        return {}
    assert answer.code == raw_remoting.SUCCESS, answer
    found: dict[str, Any] = json.loads(answer.body)
    return found


def promote(broker: BrokerProcess, *more: str, seconds: float = 60.0) -> tuple[int, str]:
    """Run `python -m broker_core promote` for a broker; return exit code and output."""
    done = subprocess.run(
        [sys.executable, "-m", "broker_core", "promote", "-c", str(broker.file), *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def is_up(broker: BrokerProcess) -> bool:
    return broker.is_running and accepts(broker.port)
