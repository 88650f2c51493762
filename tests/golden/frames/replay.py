"""Send recorded frames to a running broker, each over its own connection, which stays open."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

from tests.support.frame_proxy import Head, frames_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.frame_corpus import Recorded

ANSWER_SECONDS = 15.0
PULL_CODES = (11, 361)
MAY_WAIT = 2
END_TRANSACTION = 37
NOT_DECIDED = "0"


class Replay:
    """The frames of one client, sent to a broker's ports. Event loop only.

    Requests of the broker over one of the connections get an empty answer, as from a client of
    another version. `answers` maps each frame's place in the list to its first answer.
    """

    def __init__(self, ports: Mapping[str, int], *, pause_seconds: float = 0.0) -> None:
        self.answers: dict[int, Head] = {}
        self._ports = ports
        self._pause_seconds = pause_seconds
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def send(self, frames: list[Recorded]) -> None:
        """Send the frames one by one; wait for each answer that should come at once."""
        for place, one in enumerate(frames):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._ports[one.to])
            self._writers.append(writer)
            answered = asyncio.get_running_loop().create_future()
            head = Head(one.frame)
            if is_answered(head):
                self._waiting[place] = answered
            self._tasks.append(asyncio.create_task(self._read(reader, writer, place)))
            writer.write(one.frame)
            if is_answered(head) and not is_held(head):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(answered), ANSWER_SECONDS)
            if self._pause_seconds:
                await asyncio.sleep(self._pause_seconds)

    async def close(self) -> None:
        """Close the connections that the broker has not closed."""
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def unanswered(self) -> list[int]:
        return [place for place, answered in self._waiting.items() if not answered.done()]

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: int
    ) -> None:
        buffer = bytearray()
        while piece := await reader.read(1 << 16):
            buffer += piece
            for frame in frames_of(buffer):
                head = Head(frame)
                if not head.is_answer:
                    if not head.flag & 2:
                        writer.write(empty_answer(head.opaque))
                    continue
                self.answers.setdefault(place, head)
                waiting = self._waiting.get(place)
                if waiting is not None and not waiting.done():
                    waiting.set_result(None)


def is_answered(head: Head) -> bool:
    """Whether a request gets an answer."""
    if head.flag:
        return False
    is_undecided = head.fields.get("commitOrRollback") == NOT_DECIDED
    return not (head.code == END_TRANSACTION and is_undecided)


def is_held(head: Head) -> bool:
    """Whether a request may wait for messages."""
    return head.code in PULL_CODES and bool(int(head.fields["sysFlag"]) & MAY_WAIT)


def empty_answer(opaque: int) -> bytes:
    header = json.dumps(
        {"code": 0, "flag": 1, "language": "JAVA", "opaque": opaque, "version": 1}
    ).encode()
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
