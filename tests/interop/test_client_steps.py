"""All single-client behaviour, compared between our broker and the real one.

The outcome of each step is in outcomes/clients.md. A run with a different outcome is repeated once
with restarted brokers, because the machine may stall for seconds, and fails if it differs again.

    TREBUCHET_WRITE_OUTCOMES=1 pytest tests/interop    writes the page
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_java
from tests.interop.client_steps import STEPS
from tests.support import live_group, outcome_page, raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.outcome_page import (
    OURS,
    THEIRS,
    Differences,
    SeenOnceWarning,
    Verdict,
    run_and_confirm,
)
from tests.support.peer import Peer
from tests.support.quick_java import OPTIONS
from tests.support.raw_remoting import RawClient, topic_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from tests.support.java_clients import JavaClients

# A difference is checked again with restarted brokers.
pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(1_500),
    pytest.mark.filterwarnings("always::tests.support.outcome_page.SeenOnceWarning"),
]

VERSION = "4.9.7"
KEYS: dict[str, object] = {"enablePropertyFilter": "true", "traceTopicEnable": "true"}
# In a queue that is entirely in memory a group begins at the first message, whatever it requests.
OLD_KEYS: dict[str, object] = {
    "enablePropertyFilter": "true",
    "brokerName": "broker-old",
    "accessMessageInMemoryMaxRatio": 0,
    "autoCreateTopicEnable": "false",
}
SECONDS = 360
SUFFIXES = ("4", "5", "go")
"""Each client's suffix of topic names."""
ELSEWHERE = {
    *("delayed messages", "transactions", "transactions of a lost producer"),
    *("request and reply", "a failing message", "an always failing message", "accounts"),
}
"""Steps of test_messaging.py, test_go_clients.py and test_filters_and_access.py."""
WRITING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Deployment:
    """A name server with two brokers; the second one serves from disk."""

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


@dataclass(frozen=True, slots=True)
class Client:
    """A client library's programs: all its steps, and a consumer of a topic that stays."""

    name: str
    take_steps: Callable[[Deployment], list[str]]
    start_consumer: Callable[[Deployment, str], subprocess.Popen[str]]


def create(port: int, topic: str, *, perm: int = 6) -> None:
    with RawClient(port) as client:
        fields = {**topic_fields(topic, 1), "perm": str(perm)}
        assert client.ask(raw_remoting.UPDATE_AND_CREATE_TOPIC, fields).code == 0


@contextmanager
def deployed(kind: str, directory: Path) -> Iterator[Deployment]:
    """Our brokers or the real ones, with the topics that the steps expect."""
    with ExitStack() as stack:
        first: Peer | BrokerProcess
        old: Peer | BrokerProcess
        if kind == THEIRS:
            peer = Peer(VERSION, directory / "first", **KEYS)
            # With TLS, which is one of the steps.
            peer.java_options = OPTIONS
            first = stack.enter_context(peer)
            keys = {**OLD_KEYS, "namesrvAddr": first.namesrv}
            old = stack.enter_context(Peer(VERSION, directory / "old", **keys))
        else:
            first = BrokerProcess(directory / "first", **KEYS)
            old = BrokerProcess(directory / "old", **{**OLD_KEYS, "namesrvAddr": first.namesrv})
            for each in (first, old):
                each.start()
                stack.callback(each.stop)
        deployment = Deployment(kind, first.namesrv, first.port, old.port)
        deployment.fill()
        yield deployment


class Deployments:
    """The brokers of the first run, shared by all clients, and new ones for each repetition."""

    def __init__(self, root: Path, shared: dict[str, Deployment]) -> None:
        self._root = root
        self._shared = shared

    def verdict_on(self, client: Client) -> Verdict:
        takes = 0

        def take(kinds: list[str]) -> Differences:
            nonlocal takes
            takes += 1
            if takes == 1:
                return differences(client, [self._shared[kind] for kind in kinds])
            with ExitStack() as stack:
                fresh = []
                for kind in kinds:
                    directory = Path(tempfile.mkdtemp(dir=self._root))
                    fresh.append(stack.enter_context(deployed(kind, directory)))
                return differences(client, fresh)

        return run_and_confirm(take, [OURS, THEIRS])


@pytest.fixture(scope="module")
def deployments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployments]:
    require_java()
    root = tmp_path_factory.mktemp("steps")
    with ExitStack() as stack:
        shared = {kind: stack.enter_context(deployed(kind, root / kind)) for kind in (OURS, THEIRS)}
        yield Deployments(root, shared)


def differences(client: Client, deployments: list[Deployment]) -> Differences:
    """Run a client's programs with deployments; return the differences from the table."""
    target = {step.name for step in STEPS if client.name in step.clients} - ELSEWHERE
    topic = f"live-{client.name.lower().replace(' ', '-').replace('.', '_')}"
    found: Differences = {}
    with ThreadPoolExecutor(4) as pool:
        tours = [pool.submit(facts_of_steps, client, each) for each in deployments]
        groups = [
            pool.submit(
                live_group.facts_of, each.port, topic, partial(client.start_consumer, each, topic)
            )
            for each in deployments
        ]
        for deployment, tour, group in zip(deployments, tours, groups, strict=True):
            kind = deployment.kind
            facts: dict[str, str] = {}
            failures = []
            for program in (tour, group):
                try:
                    facts |= program.result()
                # The repetition decides: an exit or a missing message may be due to a stall, too.
                except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as error:
                    failures.append(f"{type(error).__name__}: {error}")
            for name in sorted(target - facts.keys()):
                found[kind, name] = "\n".join(
                    [f"{client.name} against {kind} took no step {name!r}", *failures]
                )
            with WRITING:
                complaints = outcome_page.complaints(STEPS, client.name, kind, facts)
            found |= {(kind, name): text for name, text in complaints.items()}
    return found


def facts_of_steps(client: Client, deployment: Deployment) -> dict[str, str]:
    """Return the facts of a program's lines "step NAME: FACTS"."""
    facts = {}
    for line in client.take_steps(deployment):
        if line.startswith("step "):
            name, _, text = line.removeprefix("step ").partition(": ")
            facts[name] = text.strip()
    return facts


def require(verdict: Verdict) -> None:
    """Fail for confirmed differences, and warn of others."""
    for text in verdict.once:
        warnings.warn(f"seen once, and not again:\n{text}", SeenOnceWarning, stacklevel=2)
    assert verdict.wrong == [], "\n" + "\n".join(verdict.wrong)


@pytest.mark.usefixtures("go_run")
def test_a_java_client_gets_the_results_in_the_table(
    java: JavaClients, deployments: Deployments
) -> None:
    def take_steps(deployment: Deployment) -> list[str]:
        arguments = (deployment.namesrv, deployment.address)
        lines = java.run("Steps", *arguments, seconds=SECONDS)
        return [" ".join(line) for line in lines]

    def start_consumer(deployment: Deployment, topic: str) -> subprocess.Popen[str]:
        arguments = (deployment.namesrv, topic, f"{topic}-group")
        return java.start("LiveConsumer", *arguments, stdin=subprocess.PIPE)

    require(deployments.verdict_on(Client(f"Java {java.version}", take_steps, start_consumer)))


@pytest.fixture(scope="module")
def go_run(
    request: pytest.FixtureRequest,
    deployments: Deployments,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Future[Verdict] | None]:
    """The Go client's steps, in parallel with the Java clients': they mostly wait."""
    if shutil.which("go") is None:
        yield None
        return
    program = request.getfixturevalue("program")
    client = go_client(program, tmp_path_factory.mktemp("go-steps"))
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(deployments.verdict_on, client)


def go_client(program: Path, directory: Path) -> Client:
    # A broadcasting consumer stores its offsets there.
    environment = {"HOME": str(directory), "PATH": "/usr/bin:/bin"}

    def take_steps(deployment: Deployment) -> list[str]:
        done = subprocess.run(
            [str(program), "steps", deployment.namesrv, deployment.address],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**environment, "HOME": tempfile.mkdtemp(dir=directory)},
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

    return Client("Go", take_steps, start_consumer)


def test_the_go_client_gets_the_results_in_the_table(
    program: Path, go_run: Future[Verdict]
) -> None:
    require(go_run.result())
