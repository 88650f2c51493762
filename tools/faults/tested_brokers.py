"""The brokers that a fault is tried on: ours, and published versions of RocketMQ.

All get the same load over the same protocol and the same checker. Failures of ours end a run;
those of RocketMQ are counted.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.peer import OriginalProcess
from tests.support.raw_remoting import RawClient
from tools.faults.operations import Stored, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OURS, ORIGINALS = "ours", ("4.9.7", "5.3.3")
KINDS = (OURS, *ORIGINALS)
KEYS: dict[str, object] = {
    "mappedFileSizeCommitLog": 4 << 20,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 20_000,
    # 5.x only; its files take 137 MB by default.
    "timerWheelEnable": "false",
}
PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED = 20, 21
TOPIC_NOT_EXIST = 17
QUIET_SECONDS = 2.0
POLL_SECONDS = 0.05
DRAIN_SECONDS_MAX = 60.0
OF_ORIGINALS_ONLY = {"timerWheelEnable"}


def missing(kind: str) -> str:
    """Return the missing prerequisites for a kind of broker, or an empty string."""
    if kind == OURS:
        return ""
    lacking = [name for name in ("java", "mvn") if shutil.which(name) is None]
    return ", ".join(lacking)


def broker(kind: str, directory: Path, **keys: object) -> BrokerProcess:
    """Return a broker with small files, not started yet."""
    if kind == OURS:
        ours = {key: value for key, value in KEYS.items() if key not in OF_ORIGINALS_ONLY}
        process = BrokerProcess(directory, **{**ours, **keys})
        process.store = keys.get("storePathRootDir", process.store)  # type: ignore[assignment]
        return process
    return OriginalProcess(kind, directory, **{**KEYS, **keys})


def is_served(port: int, topic: str) -> bool:
    """Whether a broker has a topic before the next send to it."""
    with RawClient(port) as client:
        answer = client.ask(raw_remoting.PULL_MESSAGE, raw_remoting.pull_fields(topic, 0, 0))
    return answer.code != TOPIC_NOT_EXIST


def stored(port: int, topic: str, queues: int) -> list[Stored]:
    """Return all readable messages of a topic, once no more arrive.

    After its start RocketMQ serves clients while it's still filling its queues.
    """
    ends: list[int] = []
    quiet_since = time.monotonic()
    over = quiet_since + DRAIN_SECONDS_MAX
    while time.monotonic() < min(over, quiet_since + QUIET_SECONDS):
        found = [_max_offset(port, topic, queue_id) for queue_id in range(queues)]
        if found != ends:
            ends, quiet_since = found, time.monotonic()
        time.sleep(POLL_SECONDS)
    return [one for queue_id in range(queues) for one in _read(port, topic, queue_id)]


def _max_offset(port: int, topic: str, queue_id: int) -> int:
    with RawClient(port) as client:
        fields = {"topic": topic, "queueId": str(queue_id)}
        return int(client.ask(raw_remoting.GET_MAX_OFFSET, fields).fields.get("offset", -1))


def _read(port: int, topic: str, queue_id: int) -> Iterator[Stored]:
    """Read a queue and skip unreadable messages."""
    queue_offset = 0
    with RawClient(port) as client:
        while True:
            fields = raw_remoting.pull_fields(topic, queue_id, queue_offset)
            answer = client.ask(raw_remoting.PULL_MESSAGE, fields)
            next_offset = int(answer.fields.get("nextBeginOffset", -1))
            if answer.code == raw_remoting.SUCCESS:
                for one in raw_remoting.parse_records(answer.body):
                    body = one.body
                    place = (topic, queue_id, one.queue_offset)
                    yield Stored(id_of(body), digest_of(body), *place, one.stored_ms)
            elif (
                answer.code not in (PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED)
                or next_offset <= queue_offset
            ):
                return
            queue_offset = next_offset


def id_of(body: bytes) -> str:
    """Return the unique ID at the beginning of a body, or the rest of a damaged one."""
    return body.decode(errors="replace").rstrip(".")
