"""The unmodified Go client against our broker, and against the real one by the same program."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_java
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

SOURCES = Path(__file__).resolve().parent / "go"
BUILD_SECONDS = 600
RUN_SECONDS = 120
COUNT = 60
QUEUES = 4
QUERY_CONSUMER_OFFSET = 14
VERSION = "4.9.7"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        pytest.skip("go is missing (1.21 or later; https://go.dev/dl)")
    built = tmp_path_factory.mktemp("go") / "interop"
    subprocess.run(
        ["go", "build", "-o", str(built), "."], cwd=SOURCES, timeout=BUILD_SECONDS, check=True
    )
    return built


@pytest.fixture(scope="module", params=["ours", "theirs"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, program: Path
) -> Iterator[BrokerProcess | Peer]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "theirs":
        require_java()
        with Peer(VERSION, directory / "peer") as theirs:
            yield theirs
        return
    ours = BrokerProcess(directory)
    ours.start()
    yield ours
    ours.stop()


def run(program: Path, *arguments: object) -> list[list[str]]:
    """Run the program to its end; return its lines, split at blanks."""
    done = subprocess.run(
        [str(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return [line.split() for line in done.stdout.splitlines() if line.strip()]


def topic_with(broker: BrokerProcess | Peer, name: str) -> str:
    raw_remoting.create_topic(broker.port, name, queues=QUEUES)
    return name


def send(broker: BrokerProcess | Peer, program: Path, topic: str, prefix: str) -> list[list[str]]:
    lines = run(program, "send", broker.namesrv, topic, f"{topic}-producer", COUNT, prefix)
    return [line[1:] for line in lines if line[0] == "sent"]


def receive(
    broker: BrokerProcess | Peer, program: Path, topic: str, expression: str, count: int
) -> list[list[str]]:
    arguments = (broker.namesrv, topic, f"{topic}-group", expression, count, 2_000, 60)
    lines = run(program, "receive", *arguments)
    return [line[1:] for line in lines if line[0] == "received"]


def test_each_message_is_received_once_from_where_it_was_stored(
    broker: BrokerProcess | Peer, program: Path
) -> None:
    topic = topic_with(broker, "go-all")

    sent = send(broker, program, topic, "m")
    received = receive(broker, program, topic, "*", len(sent))

    assert len(sent) == 3 * COUNT + 1
    assert Counter(line[0] for line in received) == Counter(line[0] for line in sent)
    places = {line[0]: line[2:4] for line in received}
    assert all(places[key] == place for key, *place in sent if place)
    assert all(key == body for key, _, _, _, body in received)


def test_a_tag_expression_lets_only_its_tags_through(
    broker: BrokerProcess | Peer, program: Path
) -> None:
    topic = topic_with(broker, "go-tagged")
    send(broker, program, topic, "t")

    received = receive(broker, program, topic, "A || C", 2 * COUNT)

    tags = Counter(line[1] for line in received)
    assert tags == {"A": COUNT + 1, "C": COUNT}


def test_a_restarted_consumer_goes_on_where_it_stopped(
    broker: BrokerProcess | Peer, program: Path
) -> None:
    topic = topic_with(broker, "go-offsets")
    first = send(broker, program, topic, "first")
    receive(broker, program, topic, "*", len(first))
    second = send(broker, program, topic, "second")

    received = receive(broker, program, topic, "*", len(second))

    assert {line[0] for line in received} == {line[0] for line in second}


def test_a_pull_consumer_reads_from_an_offset_and_stores_its_place(
    broker: BrokerProcess | Peer, program: Path
) -> None:
    topic = topic_with(broker, "go-pulled")
    sent = send(broker, program, topic, "p")
    in_queue_0 = sorted(int(line[2]) for line in sent if line[1:2] == ["0"])
    assert len(in_queue_0) > 5

    lines = run(program, "pull", broker.namesrv, topic, "go-pull", "broker-a", 0, 2, 3)

    assert [int(line[2]) for line in lines if line[0] == "pulled"] == [2, 3, 4]
    places = next(line for line in lines if line[0] == "next")
    assert places[1:4] == ["5", "min", "0"]
    fields = {"consumerGroup": "go-pull", "topic": topic, "queueId": "0"}

    def stored() -> bool:
        with RawClient(broker.port) as client:
            return client.ask(QUERY_CONSUMER_OFFSET, fields).fields.get("offset") == "5"

    until(stored, "the consumer's offset to be stored")
