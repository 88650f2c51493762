"""What clients of a fault run did and saw, one record a line: the history that `checker` reads.

Times are nanoseconds of CLOCK_MONOTONIC, one clock for all processes of a machine. An operation
has when it was invoked, before its bytes left, and when it returned; one without an answer returned
never. What was sent and given has the client's wall clock besides, and what was stored the
broker's. Ids are given by whoever sends, are unique in a run, and travel in the body; a digest
stands for all that a message consists of.
"""

from __future__ import annotations

import hashlib
import time
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

NEVER = 1 << 62
NOWHERE = -1


class Status(StrEnum):
    """What an answer says of its request.

    MAYBE: no answer, or FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT: it may hold
    or not. REFUSED: it must not hold.
    """

    OK = "ok"
    MAYBE = "maybe"
    REFUSED = "refused"


class Kind(StrEnum):
    """How a message is sent."""

    PLAIN = "plain"
    DELAYED = "delayed"
    HALF = "half"


class Outcome(StrEnum):
    """How a producer ends a half message."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


class Cause(StrEnum):
    """Why a group may be given what it had before."""

    CRASH = "crash"
    FAILOVER = "failover"
    REBALANCE = "rebalance"
    RESET = "reset"


class Sent(Struct, tag="sent", frozen=True):
    """A message was sent; one that is sent again after no answer is a second record of its id.

    Who may be killed itself writes it before the bytes leave, and once more with the answer: of two
    records of one client, id and time the later one counts.

    `delay_ns` is what the delay level promises; `shard` the key whose order counts, "" for none;
    `server` who answered, "" where a run has only one; `wall_ms` the client's wall clock then, 0
    where it was not looked at; `unwanted_by` the groups whose filters do not want it; `learns_ns`
    how long its client may take to learn who is master now.
    """

    client: str
    id: str
    digest: str
    topic: str
    queue_id: int
    invoked: int
    returned: int = NEVER
    status: Status = Status.MAYBE
    queue_offset: int = NOWHERE
    kind: Kind = Kind.PLAIN
    delay_ns: int = 0
    shard: str = ""
    server: str = ""
    wall_ms: int = 0
    unwanted_by: tuple[str, ...] = ()
    learns_ns: int = 0


class Ended(Struct, tag="ended", frozen=True):
    """A transaction was committed or rolled back; the request has no answer."""

    id: str
    outcome: Outcome
    invoked: int


class Delivered(Struct, tag="delivered", frozen=True):
    """A member of a group was given a message; a session ends with its connection or a seek.

    `topic` is where it was read; a retry's is the group's retry topic. `stored_ms` is when that was
    stored, by the broker's clock, `wall_ms` when it came, by the client's.
    """

    group: str
    session: str
    id: str
    digest: str
    topic: str
    queue_id: int
    queue_offset: int
    at: int
    reconsume_times: int = 0
    stored_ms: int = 0
    wall_ms: int = 0


class Consumed(Struct, tag="consumed", frozen=True):
    """A member of a group acknowledged a message: it need not come again."""

    group: str
    id: str
    at: int


class GaveBack(Struct, tag="gave-back", frozen=True):
    """A group gave a message back, to have it again `delay_ns` later, or as a dead letter.

    MAYBE: whether it arrived is not known, and the client may have tried more than once.
    """

    group: str
    id: str
    at: int
    delay_ns: int = 0
    status: Status = Status.OK
    is_dead: bool = False


class Replayed(Struct, tag="replayed", frozen=True):
    """Somebody sent a group's dead letter to it once more; `status` as of any send."""

    group: str
    id: str
    at: int
    status: Status = Status.MAYBE


class Progress(Struct, tag="progress", frozen=True):
    """The broker said how far a group is, asked `at`: it may be dead when its answer is read."""

    group: str
    topic: str
    queue_id: int
    offset: int
    at: int


class Happened(Struct, tag="happened", frozen=True):
    """Something happened after which a group, "" for all, may be given messages again.

    `ahead_ns` is by how much the clock of a new master is ahead of the old one's.
    """

    cause: Cause
    at: int
    group: str = ""
    ahead_ns: int = 0


class Bounds(Struct, tag="bounds", frozen=True):
    """The master said of a queue, asked at `invoked`: first offset, and the one after the last."""

    server: str
    topic: str
    queue_id: int
    low: int
    high: int
    invoked: int


class Unknown(Struct, tag="unknown", frozen=True):
    """Asked for a topic at `invoked`, the broker said that there is none."""

    topic: str
    invoked: int


class Acked(Struct, tag="acked", frozen=True):
    """A master took it that its slave has the log up to `said`; in fact it had it up to `had`.

    Only a simulation can look into both at once.
    """

    server: str
    said: int
    had: int
    at: int


class DiskFailed(Struct, tag="disk-failed", frozen=True):
    """A server said at `at` that a flush had failed, since `began` at the earliest.

    Until it starts again it acknowledges nothing, and shows nothing behind what it had flushed.
    """

    server: str
    began: int
    at: int


class Started(Struct, tag="started", frozen=True):
    """A server's process was started."""

    server: str
    at: int


class Faulty(Struct, tag="faulty", frozen=True):
    """A fault, from before it began until its healing, and until a send was acknowledged again."""

    what: str
    began: int
    healed: int
    recovered: int = NEVER


class Log(Struct, tag="log", frozen=True):
    """In the end, a server has this much of log, and this is its digest."""

    server: str
    end: int
    digest: str


class Stored(Struct, tag="stored", frozen=True):
    """In the end, all faults healed, a message is at its place.

    `stored_ms` is when it was put there, by the broker's clock; 0 where nobody looked.
    """

    id: str
    digest: str
    topic: str
    queue_id: int
    queue_offset: int
    stored_ms: int = 0


Operation: TypeAlias = (
    Sent
    | Ended
    | Delivered
    | Consumed
    | GaveBack
    | Replayed
    | Progress
    | Happened
    | Bounds
    | Unknown
    | Acked
    | DiskFailed
    | Started
    | Faulty
    | Log
    | Stored
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Operation)


def wall_ms() -> int:
    """Return what this machine's wall clock says."""
    return time.time_ns() // 1_000_000


def digest_of(body: bytes) -> str:
    """Return what stands for a body. Clients in other languages say the same of it."""
    return hashlib.sha256(body).hexdigest()[:16]


def write(path: Path, history: Iterable[Operation]) -> None:
    """Append a history to a file, one record a line."""
    with path.open("ab") as file:
        for one in history:
            file.write(_encoder.encode(one) + b"\n")


def read(path: Path) -> Iterator[Operation]:
    """Yield a file's records; a last line that a kill has cut is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _decoder.decode(line)
