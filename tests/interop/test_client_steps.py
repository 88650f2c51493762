"""All that a client can do by itself, against our broker and the real one, side by side.

What came of each step is kept in outcomes/clients.md; a run that sees anything else fails.

    TREBUCHET_WRITE_OUTCOMES=1 pytest tests/interop    writes the page
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_java
from tests.interop.client_steps import STEPS
from tests.support import live_group, outcome_page, raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.outcome_page import OURS, THEIRS
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient, topic_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from tests.support.java_clients import JavaClients

pytestmark = pytest.mark.interop

VERSION = "4.9.7"
KEYS: dict[str, object] = {
    "enablePropertyFilter": "true",
    # The two share the machine with JVMs that start: a late answer is no refusal.
    "waitTimeMillsInSendQueue": 10_000,
}
# Of a queue that is all in memory a group begins at its first message, wherever it wants to.
OLD_KEYS: dict[str, object] = {
    **KEYS,
    "brokerName": "broker-old",
    "accessMessageInMemoryMaxRatio": 0,
    "autoCreateTopicEnable": "false",
}
SECONDS = 150
SUFFIXES = ("4", "5", "go")
"""What each client has behind the names of its topics."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A name server with two brokers, of which the second is asked from its disk."""

    kind: str
    namesrv: str
    port: int
    old_port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def fill(self) -> None:
        create(self.port, "read-only", perm=4)
        create(self.port, "write-only", perm=2)
        for suffix in SUFFIXES:
            create(self.port, f"start-young{suffix}")
            for name in ("start-first", "start-last", "start-time"):
                create(self.old_port, f"{name}{suffix}")


def create(port: int, topic: str, *, perm: int = 6) -> None:
    with RawClient(port) as client:
        fields = {**topic_fields(topic, 1), "perm": str(perm)}
        assert client.ask(raw_remoting.UPDATE_AND_CREATE_TOPIC, fields).code == 0


@pytest.fixture(scope="module")
def deployments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Deployment]]:
    require_java()
    root = tmp_path_factory.mktemp("steps")
    with ExitStack() as stack:
        keys = {**KEYS, "traceTopicEnable": "true"}
        theirs = stack.enter_context(Peer(VERSION, root / "theirs", **keys))
        their_keys = {**OLD_KEYS, "namesrvAddr": theirs.namesrv}
        their_old = stack.enter_context(Peer(VERSION, root / "their-old", **their_keys))
        ours = BrokerProcess(root / "ours", **keys)
        our_old = BrokerProcess(root / "our-old", **{**OLD_KEYS, "namesrvAddr": ours.namesrv})
        for each in (ours, our_old):
            each.start()
            stack.callback(each.stop)
        found = [
            Deployment(OURS, ours.namesrv, ours.port, our_old.port),
            Deployment(THEIRS, theirs.namesrv, theirs.port, their_old.port),
        ]
        for deployment in found:
            deployment.fill()
        yield found


def differences(
    client: str,
    deployments: list[Deployment],
    take_steps: Callable[[Deployment], list[str]],
    start_consumer: Callable[[Deployment, str], subprocess.Popen[str]],
) -> list[str]:
    """Run a client's programs against both deployments; return what is not as in the table."""
    wanted = {step.name for step in STEPS if client in step.clients} - ELSEWHERE
    topic = f"live-{client.lower().replace(' ', '-').replace('.', '_')}"
    with ThreadPoolExecutor(4) as pool:
        tours = [pool.submit(take_steps, each) for each in deployments]
        groups = [
            pool.submit(live_group.facts_of, each.port, topic, partial(start_consumer, each, topic))
            for each in deployments
        ]
        seen = [
            parsed(tour.result()) | group.result()
            for tour, group in zip(tours, groups, strict=True)
        ]
    found = []
    for deployment, facts in zip(deployments, seen, strict=True):
        found += [f"{client} took no step {name!r}" for name in sorted(wanted - facts.keys())]
        with WRITING:
            found += outcome_page.complaints(STEPS, client, deployment.kind, facts)
    return found


WRITING = threading.Lock()


ELSEWHERE = {
    *("delayed messages", "transactions", "transactions of a producer that is gone"),
    *("request and reply", "a message that fails", "a message that always fails", "accounts"),
}
"""Steps of test_messaging.py, test_go_clients.py and test_filters_and_access.py."""


def parsed(lines: list[str]) -> dict[str, str]:
    """Return the facts of a program's lines "step NAME: FACTS"."""
    facts = {}
    for line in lines:
        if line.startswith("step "):
            name, _, text = line.removeprefix("step ").partition(": ")
            facts[name] = text.strip()
    return facts


@pytest.mark.usefixtures("go_run")
def test_a_java_client_sees_what_the_table_says(
    java: JavaClients, deployments: list[Deployment]
) -> None:
    def take_steps(deployment: Deployment) -> list[str]:
        arguments = (deployment.namesrv, deployment.address)
        lines = java.run("Steps", *arguments, seconds=SECONDS)
        return [" ".join(line) for line in lines]

    def start_consumer(deployment: Deployment, topic: str) -> subprocess.Popen[str]:
        arguments = (deployment.namesrv, topic, f"{topic}-group")
        return java.start("LiveConsumer", *arguments, stdin=subprocess.PIPE)

    found = differences(f"Java {java.version}", deployments, take_steps, start_consumer)

    assert found == [], "\n" + "\n".join(found)


@pytest.fixture(scope="module")
def go_run(
    request: pytest.FixtureRequest,
    deployments: list[Deployment],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Future[list[str]] | None]:
    """The Go client's steps, while the Java clients take theirs: most of their time is waiting."""
    if shutil.which("go") is None:
        yield None
        return
    program = request.getfixturevalue("program")
    directory = tmp_path_factory.mktemp("go-steps")
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run_go, program, deployments, directory)


def run_go(program: Path, deployments: list[Deployment], directory: Path) -> list[str]:
    # There a consumer that broadcasts keeps its places.
    environment = {"HOME": str(directory), "PATH": "/usr/bin:/bin"}

    def take_steps(deployment: Deployment) -> list[str]:
        home = directory / deployment.kind
        home.mkdir()
        done = subprocess.run(
            [str(program), "steps", deployment.namesrv, deployment.address],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**environment, "HOME": str(home)},
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        return done.stdout.splitlines()

    def start_consumer(deployment: Deployment, topic: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(program), "live", deployment.namesrv, topic, f"{topic}-group"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    return differences("Go", deployments, take_steps, start_consumer)


def test_the_go_client_sees_what_the_table_says(program: Path, go_run: Future[list[str]]) -> None:
    found = go_run.result()

    assert found == [], "\n" + "\n".join(found)
