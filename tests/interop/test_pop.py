"""POP: our broker answers like Apache RocketMQ 5.3.3, and its client can pop from ours."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_java
from tests.interop.pop_steps import Steps
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.peer import Peer, classpath
from tests.support.pop_consumer import Held, Popper
from tests.support.quick_java import COMPILER, OPTIONS
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

VERSION = "5.3.3"
SOURCE = Path(__file__).parent / "pop" / "PopClient.java"
TOPIC, GROUP, COUNT = "pop-client", "pop-client-group", 20
SECONDS = 240
INVISIBLE_MS = 60_000
DIFFER = {
    # RocketMQ leases whatever a receipt names.
    "change an unleased message": "208",
    # RocketMQ looks for messages before it checks the number.
}
FOUND, NOTHING = "0", "210"


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    require_java()
    with Peer(VERSION, tmp_path_factory.mktemp("theirs")) as peer:
        yield peer


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("ours"))
    broker.start()
    yield broker
    broker.stop()


def comparable(line: str) -> tuple[str, str]:
    """Return a step's name and the comparable part."""
    name, _, words = line.partition(": ")
    code, _, rest = words.partition(" ")
    if code not in (FOUND, NOTHING):
        return name, code
    rest = re.sub(r"remark='[^']*' ?", "", rest)
    # Ours stores all leases in one queue; times vary.
    rest = re.sub(r"reviveQid=[0-7]\b", "reviveQid=ANY", rest)
    rest = re.sub(r"invisibleTime=30\d{3}\b", "invisibleTime=ABOUT_30_S", rest)
    rest = re.sub(r" after \d+ s", "", rest)
    if code == NOTHING:
        # RocketMQ sends "too late" with an empty header.
        rest = re.sub(r"\S+=(0|ANY|TIME|60000)\b ?", "", rest)
    return name, f"{code} {rest}".strip()


def test_every_step_of_pop_is_answered_like_by_the_original(
    ours: BrokerProcess, theirs: Peer
) -> None:
    mine = [comparable(line) for line in Steps(ours.port).run()]
    expected = [comparable(line) for line in Steps(theirs.port).run()]

    assert [name for name, _ in mine] == [name for name, _ in expected]
    different = {
        name: f"ours {got}, theirs {words}"
        for (name, got), (_, words) in zip(mine, expected, strict=True)
        if got != DIFFER.get(name, words)
    }
    assert not different


def run_client(namesrv: str, port: int, jars: str, home: Path) -> list[str]:
    """Set a group's mode with mqadmin, run the client; return its messages."""
    raw_remoting.create_topic(port, TOPIC, queues=4)
    java = ("java", "-Xmx256m", *OPTIONS, f"-Duser.home={home}", "-cp", jars)
    admin = "org.apache.rocketmq.tools.command.MQAdminStartup"
    mode = ["setConsumeMode", *("-n", namesrv, "-c", "DefaultCluster", "-t", TOPIC, "-g", GROUP)]
    environment = {"ROCKETMQ_HOME": str(home), "PATH": "/usr/bin:/bin"}
    report = subprocess.run(
        [*java, admin, *mode, "-m", "POP", "-q", "8"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    ).stdout
    assert "success" in report, report
    ran = subprocess.run(
        [*java, "PopClient", namesrv, TOPIC, GROUP, str(COUNT)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return [line for line in ran.stdout.splitlines() if " attempt " in line]


def test_the_5_3_3_client_pops_and_retries_like_with_the_original(
    ours: BrokerProcess, theirs: Peer, tmp_path: Path
) -> None:
    jars = classpath(VERSION, ("rocketmq-tools", "rocketmq-client"))
    classes = tmp_path / "classes"
    subprocess.run(
        [*COMPILER, "-d", str(classes), "-cp", jars, str(SOURCE)],
        timeout=SECONDS,
        check=True,
    )
    path = f"{classes}:{jars}"

    mine = run_client(ours.namesrv, ours.port, path, tmp_path)

    assert mine == run_client(theirs.namesrv, theirs.port, path, tmp_path)
    assert f"{TOPIC} again attempt 1 popped" in mine
    assert not any(" drop " in line for line in mine)
    assert len(mine) == COUNT + 2


def test_leases_in_a_store_of_the_original_continue(tmp_path: Path) -> None:
    require_java()
    keys = {"mappedFileSizeCommitLog": 1 << 20, "brokerIP1": "127.0.0.1"}
    directory = tmp_path / "theirs"
    # The broker needs no name server for these requests.
    with Peer(VERSION, directory, **keys, namesrvAddr="127.0.0.1:1") as peer:
        peer.ends_in_order = True
        raw_remoting.create_topic(peer.port, TOPIC, queues=1)
        with RawClient(peer.port) as client:
            for number in range(8):
                fields = raw_remoting.send_fields(TOPIC)
                assert client.ask(raw_remoting.SEND_MESSAGE, fields, b"%d" % number).code == 0
            popper = Popper(client, GROUP, TOPIC)
            first = popper.pop(4, INVISIBLE_MS)
            for held in first[:2]:
                popper.acknowledge(held)
            changed = popper.change(first[2], 2 * INVISIBLE_MS)
            for held in popper.pop(3, INVISIBLE_MS):
                popper.acknowledge(held)
        # RocketMQ writes its offsets every five seconds.
        time.sleep(6)

    broker = BrokerProcess(tmp_path / "ours", **keys, storePathRootDir=directory / "store")
    broker.start()
    try:
        with RawClient(broker.port) as client:
            popper = Popper(client, GROUP, TOPIC)
            until(lambda: _is_acknowledged(popper, changed), "the leases", seconds=60)
            found = popper.drain(120, enough=2)
            time.sleep(3)
            found += popper.drain(3, enough=8)
        assert sorted(each.body for each in found) == ["3", "7"]
        assert {each.body: each.reconsume_times for each in found} == {"3": 1, "7": 0}
    finally:
        broker.stop()


def _is_acknowledged(popper: Popper, held: Held) -> bool:
    """Acknowledge a message; return False while the broker is reading its leases."""
    try:
        popper.acknowledge(held)
    except AssertionError:
        return False
    return True
