"""RocketMQ's own clients, in Java and Go, next to the raw ones of a fault run.

Both send to a separate topic, so that the checks of the raw clients don't change; each is a group
that gets both clients' messages. Checks decide a transaction if its outcome was lost. The clients'
records become a part of the run's history.
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
"""Topics to create before they start, with their number of queues; otherwise clients find them
late.
"""
DELAY_MS = 1_000
"""Delay of level 1."""
TIME_OUT = "transactionTimeOut"
TIME_OUT_MS = 500
KEYS: dict[str, object] = {
    "transactionCheckInterval": 500,
    TIME_OUT: TIME_OUT_MS,
    # The Go client registers its producers with a restarted broker up to half a minute late.
    "transactionCheckMax": 1_000_000,
    # The broker may live for only a second or two, and groups should keep their progress.
    "flushConsumerOffsetInterval": 200,
}
"""Broker configuration for these clients."""
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
    """The compiled client programs."""

    java: JavaClients
    go: Path


def missing() -> str:
    """Return the missing prerequisites, or an empty string."""
    return ", ".join([*java_clients.missing(), *filter(None, [go_client.missing()])])


def build(directory: Path) -> Programs:
    directory.mkdir(parents=True, exist_ok=True)
    java = JavaClients(VERSION, directory)
    java.build()
    return Programs(java, go_client.build(directory))


class RealClients:
    """One client in Java and one in Go, which work from the beginning of the block."""

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
        """`prefix` is a command prefix such as `ip netns exec NAME`."""
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
        """Wait until each has recorded some operations."""
        until(
            lambda: all(len(one.history()) >= WORDS_MIN for one in self._recorders),
            "the Java and the Go client to work",
            seconds=WORKING_SECONDS_MAX,
        )

    def history(self, servers: Mapping[str, str] | None = None) -> list[Operation]:
        """Return their records so far; `servers` has names by address."""
        return [line for one in self._recorders for line in one.history(servers)]

    def stored(self) -> list[Operation]:
        """Return the stored messages of their topic, including retries and dead letters."""
        places = [(TOPIC, queue_id) for queue_id in range(QUEUES)]
        places += [(f"%{kind}%{group}", 0) for kind in ("RETRY", "DLQ") for group in GROUPS]
        return [
            one
            for topic, queue_id in places
            for one in as_stored(self._read(topic, queue_id), topic, queue_id)
        ]

    def rest(self) -> None:
        """Stop their sends once all pending sends are answered."""
        for one in self._recorders:
            one.rest()

    def come_to_end(self, servers: Mapping[str, str] | None = None) -> list[Operation]:
        """Wait until they have consumed all messages and ended; return their records."""

        def is_over() -> bool:
            return not unfinished(self.history(), self.stored(), TOPIC, GROUPS)

        # The checker reports missing messages.
        with suppress(AssertionError):
            until(
                is_over,
                "the Java and the Go client to finish",
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
    """Create their topics on a master on this host, and return the clients, not started yet.

    `find_port` returns the port of the current master.
    """
    for topic, queues in TOPICS.items():
        raw_remoting.create_topic(find_port(), topic, queues=queues)

    def read(topic: str, queue_id: int) -> list[raw_remoting.Record]:
        return raw_remoting.read_queue(find_port(), topic, queue_id)

    return RealClients(programs, directory, namesrv, read, pause_ms=pause_ms)


def let_check(port: int, host: str = "127.0.0.1") -> None:
    """Let a broker check transactions soon, after checks were off during the faults."""
    with RawClient(port, host=host) as client:
        settings = f"{TIME_OUT}={TIME_OUT_MS}\n".encode()
        answer = client.ask(UPDATE_BROKER_CONFIG, {}, settings)
    assert answer.code == raw_remoting.SUCCESS, answer


def unfinished(
    history: Iterable[Operation], stored: list[Operation], topic: str, groups: Sequence[str]
) -> set[tuple[str, str]]:
    """Return pending work: messages to be put, delivered or consumed, and dead letters.

    The groups of RocketMQ's own clients record consumed messages; other groups record deliveries.
    """
    there = {one.id for one in stored if isinstance(one, Stored) and one.topic == topic}
    buried = {
        (one.topic.removeprefix("%DLQ%"), one.id)
        for one in stored
        if isinstance(one, Stored) and one.topic.startswith("%DLQ%")
    }
    expected: set[str] = set()
    rolled_back: set[str] = set()
    had: set[tuple[str, str]] = set()
    dead: set[tuple[str, str]] = set()
    for one in history:
        match one:
            case Sent(status=Status.OK):
                expected.add(one.id)
            case Ended(outcome=Outcome.ROLLBACK):
                rolled_back.add(one.id)
            case Consumed():
                had.add((one.group, one.id))
            case Delivered() if one.group not in GROUPS:
                had.add((one.group, one.id))
            case GaveBack(group="go-group"):
                # That client polls the retry topic only every twenty seconds and ignores the
                # answer: it gives up a message that the broker rejects.
                had.add((one.group, one.id))
            case GaveBack(is_dead=True):
                dead.add((one.group, one.id))
            case _:
                pass
    return {
        *(("", one) for one in expected - there - rolled_back),
        *({(group, one) for group in groups for one in there} - had - dead),
        *(dead - buried),
    }


def doubted(
    history: Iterable[Operation], stored: Iterable[Operation], since: int, until_ns: int
) -> list[Operation]:
    """Return a history without guarantees for answers between two times, with the power off.

    A real machine wouldn't answer then. One whose file system is shut down lives on until it's
    killed, and may have delivered messages that aren't `stored` at the end.
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
