"""Write pair-4.9.7.json: the bytes between a real master and a real slave 4.9.7.

    python -m tests.golden.ha.make_ha_4_9_7

The slave connects through a proxy to a master that has messages, and gets more live; transfers are
small, so that they cut messages. Both send heartbeats. Then the slave is restarted.

Each line of the file has the bytes from one side up to the other's next bytes: its name and the
bytes in hex; `connect` begins a connection.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

from broker_core.protocol.codes import ResponseCode
from tests.support.client import Client
from tests.support.peer import Peer
from tests.support.tapped_proxy import TappedProxy
from tests.support.waiting import until

FILE = Path(__file__).with_name("pair-4.9.7.json")
VERSION = "4.9.7"
BATCH_BYTES = 200
HEARTBEAT_SECONDS = 7.0
MASTER = {"haTransferBatchSize": BATCH_BYTES, "brokerRole": "ASYNC_MASTER"}


async def send(port: int, *bodies: bytes) -> None:
    client = Client(f"127.0.0.1:{port}")
    try:
        for body in bodies:
            sent = await client.send("T", body)
            assert sent.code == ResponseCode.SUCCESS
    finally:
        await client.shutdown()


def main() -> None:
    messages: list[tuple[str, bytes]] = []

    def tap(is_from_slave: bool, data: bytes) -> bytes:
        name = "slave" if is_from_slave else "master"
        if messages and messages[-1][0] == name:
            messages[-1] = name, messages[-1][1] + data
        else:
            messages.append((name, data))
        return data

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with Peer(VERSION, directory / "master", **MASTER) as master:
            master.ends_in_order = True
            asyncio.run(send(master.port, b"one", b"two" * 50))
            with TappedProxy(master.port + 1, tap) as proxy:
                keys = {
                    "namesrvAddr": master.namesrv,
                    "brokerRole": "SLAVE",
                    "brokerId": 1,
                    "haMasterAddress": proxy.address,
                }
                slave = Peer(VERSION, directory / "slave", **keys)
                slave.ends_in_order = True
                for body in (b"three", b"four"):
                    messages.append(("connect", b""))
                    with slave:
                        until(lambda: messages[-1][0] != "connect", "the slave to say something")
                        time.sleep(HEARTBEAT_SECONDS)
                        asyncio.run(send(master.port, body))
                        time.sleep(2 * HEARTBEAT_SECONDS)
                    proxy.cut()
                    time.sleep(1)
    FILE.write_text("".join(json.dumps([sender, data.hex()]) + "\n" for sender, data in messages))


if __name__ == "__main__":
    main()
