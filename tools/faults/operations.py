"""The operations of a fault run's clients, one record a line: the history that `checker` reads.

Times are nanoseconds of CLOCK_MONOTONIC, one clock for all processes of a machine. An operation
has an invocation time, before its bytes left, and a return time; without an answer it never
returned. Sent and delivered messages also have the client's wall clock, stored ones the broker's.
The sender chooses IDs, which are unique in a run and travel in the body; a digest represents the
message's content.
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
    """The status that an answer gives its request.

    MAYBE: no answer, or FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT: the request
    may or may not have had an effect. REFUSED: it must not have had one.
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
    """Why a group may receive messages again."""

    CRASH = "crash"
    FAILOVER = "failover"
    REBALANCE = "rebalance"
    RESET = "reset"


class Sent(Struct, tag="sent", frozen=True):
    """A message was sent; a resend without an answer is a second record of its ID.

    A client that may be killed writes it before the bytes leave, and again with the answer: of two
    records with the same client, ID and time, the later one counts.

    `delay_ns` is the delay level's duration. `shard` is the ordering key, "" without one. `server`
    is the server that answered, "" in a run with only one. `wall_ms` is the client's wall clock, 0
    if not recorded. `unwanted_by` are the groups whose filters reject it. `learns_ns` is how long
    its client may take to discover a new master.
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
    """A member of a group received a message; a session ends with its connection or a seek.

    `topic` is where it was read; a retry's is the group's retry topic. `stored_ms` is its store
    time by the broker's clock, `wall_ms` its arrival time by the client's.
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
    """A member of a group acknowledged a message: it needn't be delivered again."""

    group: str
    id: str
    at: int


class GaveBack(Struct, tag="gave-back", frozen=True):
    """A group returned a message, for redelivery after `delay_ns` or as a dead letter.

    MAYBE: it may not have arrived, and the client may have tried more than once.
    """

    group: str
    id: str
    at: int
    delay_ns: int = 0
    status: Status = Status.OK
    is_dead: bool = False


class Replayed(Struct, tag="replayed", frozen=True):
    """A dead letter was replayed to its group; `status` as of any send."""

    group: str
    id: str
    at: int
    status: Status = Status.MAYBE


class Progress(Struct, tag="progress", frozen=True):
    """The broker reported a group's progress, requested `at`; it may have died since."""

    group: str
    topic: str
    queue_id: int
    offset: int
    at: int


class Happened(Struct, tag="happened", frozen=True):
    """An event after which a group, "" for all, may receive messages again.

    `ahead_ns` is how far a new master's clock is ahead of the old one's.
    """

    cause: Cause
    at: int
    group: str = ""
    ahead_ns: int = 0


class Bounds(Struct, tag="bounds", frozen=True):
    """The master's first offset and end of a queue, requested at `invoked`."""

    server: str
    topic: str
    queue_id: int
    low: int
    high: int
    invoked: int


class Unknown(Struct, tag="unknown", frozen=True):
    """The broker answered that a topic doesn't exist, to a request sent at `invoked`."""

    topic: str
    invoked: int


class Acked(Struct, tag="acked", frozen=True):
    """A master assumed that its slave has the log up to `reported`; in fact it had it up to `had`.

    Only a simulation can read both at once.
    """

    server: str
    reported: int
    had: int
    at: int


class DiskFailed(Struct, tag="disk-failed", frozen=True):
    """A server reported at `at` that a flush had failed, since `began` at the earliest.

    Until it restarts, it acknowledges nothing and shows only flushed data.
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
    """A server's log length at the end, and its digest."""

    server: str
    end: int
    digest: str


class Stored(Struct, tag="stored", frozen=True):
    """A message's location at the end, with all faults healed.

    `stored_ms` is its store time by the broker's clock; 0 if not recorded.
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
    """Return this machine's wall clock."""
    return time.time_ns() // 1_000_000


def digest_of(body: bytes) -> str:
    """Return a body's digest, which clients in other languages compute in the same way."""
    return hashlib.sha256(body).hexdigest()[:16]


def write(path: Path, history: Iterable[Operation]) -> None:
    """Append a history to a file, one record a line."""
    with path.open("ab") as file:
        for one in history:
            file.write(_encoder.encode(one) + b"\n")


def read(path: Path) -> Iterator[Operation]:
    """Yield a file's records, without a last line truncated by a kill."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _decoder.decode(line)
