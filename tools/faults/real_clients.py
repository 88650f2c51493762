"""Clients of RocketMQ's own, in Java and Go, beside the raw ones of a fault run.

Both send to a topic of their own, so that a run asks of its raw clients what it always does; each
is a group that is given what both send. Their transactions are decided by a check where an outcome
did not arrive. What they wrote down becomes a part of the run's history.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from tests.support import go_client, java_clients, raw_remoting
from tests.support.java_clients import JavaClients
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until
from tools.faults import recorders
from tools.faults.clients import as_stored
from tools.faults.operations import (
    NEVER,
    NOWHERE,
    Consumed,
    Delivered,
    Ended,
    GaveBack,
    Outcome,
    Sent,
    Status,
    Stored,
)
from tools.faults.recorders import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from tools.faults.operations import Operation
    from tools.faults.recorders import Recorder

UPDATE_BROKER_CONFIG = 25
VERSION = "4.9.7"
TOPIC, QUEUES = "real-clients", 2
JAVA_GROUP, GO_GROUP = "java-group", "go-group"
GROUPS = (JAVA_GROUP, GO_GROUP)
TOPICS = {TOPIC: QUEUES, **{f"%RETRY%{group}": 1 for group in GROUPS}}
"""To be made before they start, with how many queues each has; else they learn of them late."""
DELAY_MS = 1_000
"""Of delay level 1."""
TIME_OUT = "transactionTimeOut"
TIME_OUT_MS = 500
KEYS: dict[str, object] = {
    "transactionCheckInterval": 500,
    TIME_OUT: TIME_OUT_MS,
    # The Go client tells a broker that starts of its producers up to half a minute later only.
    "transactionCheckMax": 1_000_000,
    # A broker may live for a second or two only, and groups are to keep how far they are.
    "flushConsumerOffsetInterval": 200,
}
"""What a broker is to have that they work with."""
PAUSE_MS = 4
"""Between two sends, by default."""
SENDING_SECONDS_MAX = 36_000
WORDS_MIN = 50
WORKING_SECONDS_MAX = 180.0
END_SECONDS_MAX = 180.0
POLL_SECONDS = 0.5

Read: TypeAlias = "Callable[[str, int], list[raw_remoting.Record]]"
"""Reads a queue of a topic to its end."""


class Programs(NamedTuple):
    """Their programs, built."""

    java: JavaClients
    go: Path


def missing() -> str:
    """Return what this machine lacks for them, nothing if it has all."""
    return ", ".join([*java_clients.missing(), *filter(None, [go_client.missing()])])


def build(directory: Path) -> Programs:
    directory.mkdir(parents=True, exist_ok=True)
    java = JavaClients(VERSION, directory)
    java.build()
    return Programs(java, go_client.build(directory))


class RealClients:
    """One client in Java and one in Go, which work from the block's beginning on."""

    def __init__(
        self,
        programs: Programs,
        directory: Path,
        namesrv: str,
        read: Read,
        prefix: Sequence[str] = (),
        *,
        seed: int = 0,
        pause_ms: int = PAUSE_MS,
    ) -> None:
        """`prefix` is what runs their commands, such as `ip netns exec NAME`."""
        self._programs = programs
        self._tasks = {
            group: Task(
                *(namesrv, TOPIC, group, directory / f"{group}.jsonl"),
                *(seed, SENDING_SECONDS_MAX, DELAY_MS, pause_ms),
            )
            for group in GROUPS
        }
        self._read = read
        self._prefix = prefix
        self._recorders: list[Recorder] = []
        self._processes = ExitStack()

    def __enter__(self) -> Self:
        java = recorders.java(self._programs.java, self._tasks[JAVA_GROUP], self._prefix)
        self._recorders.append(self._processes.enter_context(java))
        go = recorders.go(self._programs.go, self._tasks[GO_GROUP], self._prefix)
        self._recorders.append(self._processes.enter_context(go))
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    def until_working(self) -> None:
        """Wait until each has written down some of what it did."""
        until(
            lambda: all(len(one.history()) >= WORDS_MIN for one in self._recorders),
            "the Java and the Go client to work",
            seconds=WORKING_SECONDS_MAX,
        )

    def history(self, servers: Mapping[str, str] | None = None) -> list[Operation]:
        """Return what they wrote down until now; `servers` has names by address."""
        return [line for one in self._recorders for line in one.history(servers)]

    def stored(self) -> list[Operation]:
        """Return what is stored of their topic, retries and dead letters included."""
        places = [(TOPIC, queue_id) for queue_id in range(QUEUES)]
        places += [(f"%{kind}%{group}", 0) for kind in ("RETRY", "DLQ") for group in GROUPS]
        return [
            one
            for topic, queue_id in places
            for one in as_stored(self._read(topic, queue_id), topic, queue_id)
        ]

    def rest(self) -> None:
        """Have them send no more, once they have the answers to what they sent last."""
        for one in self._recorders:
            one.rest()

    def come_to_end(self, servers: Mapping[str, str] | None = None) -> list[Operation]:
        """Wait until they have consumed all and have ended; return what they wrote down."""

        def is_over() -> bool:
            return not unfinished(self.history(), self.stored(), TOPIC, GROUPS)

        # What did not come is found by the checker.
        with suppress(AssertionError):
            until(
                is_over,
                "the Java and the Go client to be done",
                seconds=END_SECONDS_MAX,
                every_s=POLL_SECONDS,
            )
        for one in self._recorders:
            one.end()
        for one in self._recorders:
            one.wait()
        return self.history(servers)


def beside(
    programs: Programs,
    directory: Path,
    namesrv: str,
    find_port: Callable[[], int],
    *,
    pause_ms: int = PAUSE_MS,
) -> RealClients:
    """Make their topics on a master on this host, and return the clients, not started yet.

    `find_port` says where the master of now listens.
    """
    for topic, queues in TOPICS.items():
        raw_remoting.create_topic(find_port(), topic, queues=queues)

    def read(topic: str, queue_id: int) -> list[raw_remoting.Record]:
        return raw_remoting.read_queue(find_port(), topic, queue_id)

    return RealClients(programs, directory, namesrv, read, pause_ms=pause_ms)


def let_check(port: int, host: str = "127.0.0.1") -> None:
    """Have a broker, which waited for outcomes as long as faults came, ask for them soon."""
    with RawClient(port, host=host) as client:
        told = f"{TIME_OUT}={TIME_OUT_MS}\n".encode()
        answer = client.ask(UPDATE_BROKER_CONFIG, {}, told)
    assert answer.code == raw_remoting.SUCCESS, answer


def unfinished(
    history: Iterable[Operation], stored: list[Operation], topic: str, groups: Sequence[str]
) -> set[tuple[str, str]]:
    """Return what is still to come: messages to be put, given or consumed, and dead letters.

    The groups of RocketMQ's own clients say what they consumed; of others what they were given.
    """
    there = {one.id for one in stored if isinstance(one, Stored) and one.topic == topic}
    buried = {
        (one.topic.removeprefix("%DLQ%"), one.id)
        for one in stored
        if isinstance(one, Stored) and one.topic.startswith("%DLQ%")
    }
    wanted: set[str] = set()
    rolled_back: set[str] = set()
    had: set[tuple[str, str]] = set()
    dead: set[tuple[str, str]] = set()
    for one in history:
        match one:
            case Sent(status=Status.OK):
                wanted.add(one.id)
            case Ended(outcome=Outcome.ROLLBACK):
                rolled_back.add(one.id)
            case Consumed():
                had.add((one.group, one.id))
            case Delivered() if one.group not in GROUPS:
                had.add((one.group, one.id))
            case GaveBack(group="go-group"):
                # That client looks for its share of the retry topic every twenty seconds only, and
                # does not look at the answer: what a broker refused it gives up.
                had.add((one.group, one.id))
            case GaveBack(is_dead=True):
                dead.add((one.group, one.id))
            case _:
                pass
    return {
        *(("", one) for one in wanted - there - rolled_back),
        *({(group, one) for group in groups for one in there} - had - dead),
        *(dead - buried),
    }


def doubted(
    history: Iterable[Operation], stored: Iterable[Operation], since: int, until_ns: int
) -> list[Operation]:
    """Return a history whose answers between two times promise nothing: the power was gone.

    No machine answers then; one whose file system is shut down lives on until it is killed, and may
    have given what is not `stored` in the end.
    """
    there = {
        (one.id, one.topic, one.queue_id, one.queue_offset)
        for one in stored
        if isinstance(one, Stored)
    }
    found: list[Operation] = []
    for one in history:
        match one:
            case Sent() if since <= one.returned < until_ns:
                maybe = replace(one, returned=NEVER, status=Status.MAYBE, queue_offset=NOWHERE)
                found.append(maybe)
            case Delivered() if (
                since <= one.at < until_ns
                and (one.id, one.topic, one.queue_id, one.queue_offset) not in there
            ):
                pass
            case _:
                found.append(one)
    return found
