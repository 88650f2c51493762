"""Clients that only stay connected: heartbeats, and answers to the broker's requests."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from broker_core.protocol.codes import RequestCode
from tests.support import raw_remoting
from tests.support.raw_remoting import RawClient

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

HEARTBEAT_SECONDS = 30.0
RESPONSE = 1
"""The response bit of a frame's flag."""
HEALTHY: dict[str, object] = {
    "properties": {},
    "subscriptionSet": [],
    "mqTable": {},
    "statusTable": {},
}


def heartbeat(number: int, topic: str, group: str) -> bytes:
    """Return a heartbeat of a client that reads a topic in a group and produces in another."""
    subscription = {
        "topic": topic,
        "subString": "*",
        "subVersion": 1,
        "expressionType": "TAG",
        "tagsSet": [],
        "codeSet": [],
        "classFilterMode": False,
    }
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }
    return json.dumps(
        {
            "clientID": f"10.0.0.{number % 250}@{number}",
            "consumerDataSet": [consumer],
            "producerDataSet": [{"groupName": f"pg-{number:05d}"}],
        }
    ).encode()


class Clients:
    """Connections to a broker, kept open by a thread. A context manager."""

    def __init__(self, port: int, heartbeats: Sequence[bytes]) -> None:
        self._port = port
        self._heartbeats = heartbeats
        self._opened: Future[asyncio.AbstractEventLoop] = Future()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._keep()), daemon=True)

    def __enter__(self) -> Clients:
        self._thread.start()
        self._loop = self._opened.result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    async def _keep(self) -> None:
        """Open all connections and serve them until the loop cancels this task."""
        tasks = []
        try:
            for body in self._heartbeats:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                tasks.append(asyncio.create_task(self._beat(writer, body)))
                tasks.append(asyncio.create_task(self._answer(reader, writer)))
        except OSError as error:
            self._opened.set_exception(error)
            raise
        self._opened.set_result(asyncio.get_running_loop())
        await self._end.wait()

    async def _beat(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        while True:
            writer.write(raw_remoting.request(RequestCode.HEART_BEAT, body=body))
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(length)
            (word,) = struct.unpack_from(">i", frame)
            header = json.loads(frame[4 : 4 + (word & 0xFFFFFF)])
            is_request = header["code"] == RequestCode.GET_CONSUMER_RUNNING_INFO
            if is_request and not header["flag"] & RESPONSE:
                answer = {**header, "code": 0, "flag": RESPONSE, "extFields": {}}
                body = json.dumps(HEALTHY).encode()
                writer.write(raw_remoting.frame(json.dumps(answer).encode(), body))


def pipelined(port: int, requests: Sequence[tuple[int, dict[str, str] | None, bytes]]) -> None:
    """Send requests that must succeed, a hundred at a time."""
    with RawClient(port) as client:
        for first in range(0, len(requests), 100):
            part = requests[first : first + 100]
            for code, fields, body in part:
                client.send_request(code, fields, body)
            client.read_successes(len(part))
