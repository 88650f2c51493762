"""A set of RocketMQ 5.3.3 brokers; the controller in the name server elects the master.

It has the interface of `BrokerSet`, so that one run covers both. Promotion requests aren't needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.broker_set import NAME, ProcessSet
from tests.support.log_end import log_end
from tests.support.peer import OriginalProcess
from tests.support.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

    from tests.support.broker_process import BrokerProcess

VERSION = "5.3.3"
SYSTEM_TOPIC = "TBW102"
"""A topic that each broker registers."""
UP_SECONDS, CAUGHT_UP_SECONDS = 240.0, 120.0
KEYS: dict[str, object] = {
    "enableControllerMode": "true",
    # A message is acknowledged once this many replicas, and all that are in sync, have it.
    "inSyncReplicas": 2,
    "minInSyncReplicas": 2,
    "allAckInSyncStateSet": "true",
    "slaveReadEnable": "true",
    # The timer wheel's files would take 137 MB.
    "timerWheelEnable": "false",
}


class ControlledSet(ProcessSet):
    """A name server with a controller, and two brokers; the first one starts as master."""

    def __init__(self, directory: Path, keys: Mapping[str, object]) -> None:
        self.directory = directory
        controller = f"127.0.0.1:{free_port()}"
        port = free_port()
        self.namesrv = OriginalProcess(
            VERSION,
            directory / "namesrv",
            listenPort=port,
            namesrvAddr="",
            kvConfigPath=directory / "namesrv/kv.json",
            enableControllerInNamesrv="true",
            controllerDLegerGroup="controllers",
            controllerDLegerPeers=f"n0-{controller}",
            controllerDLegerSelfId="n0",
            controllerStorePath=directory / "namesrv/controller",
            notifyBrokerRoleChanged="true",
        )
        self.namesrv.main = "namesrv.NamesrvStartup"
        self.namesrv.port = port
        self.brokers: list[BrokerProcess] = []
        for number in range(2):
            table = {
                **KEYS,
                **keys,
                "brokerName": NAME,
                "listenPort": free_port(),
                "haListenPort": free_port(),
                "brokerIP2": "127.0.0.1",
                "namesrvAddr": self.namesrv_address,
                "controllerAddr": controller,
            }
            broker = OriginalProcess(VERSION, directory / f"broker-{number}", **table)
            broker.port = int(str(table["listenPort"]))
            self.brokers.append(broker)

    def __enter__(self) -> Self:
        self.namesrv.start()
        for broker in self.brokers:
            broker.start()
            # The first broker to register is elected.
            until(
                lambda: self.master_in_route(SYSTEM_TOPIC) == self.brokers[0].port,
                "the first broker to be elected",
                seconds=UP_SECONDS,
            )
        return self

    def until_same(self, one: BrokerProcess, other: BrokerProcess) -> int:
        """Wait until two brokers have logs of the same length; return that length."""
        ends: list[int] = []

        def is_same() -> bool:
            ends[:] = [log_end(one.port), log_end(other.port)]
            return ends[0] == ends[1] >= 0

        until(is_same, "both logs to be equal", seconds=CAUGHT_UP_SECONDS)
        return ends[0]
