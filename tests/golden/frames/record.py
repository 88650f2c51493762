"""Record the corpus: run the programs of every client on a broker behind a recording proxy.

    python -m tests.golden.frames.record [CLIENT ...]    records all clients, or those named
    python -m tests.golden.frames.record answers         queries the real broker again

It needs Java, Maven and Go, and takes several minutes. It records nothing private: accounts are the
tests' own, and frames with addresses outside of loopback and documentation networks are dropped.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tests.golden.frames.replay import Replay
from tests.interop.mqadmin_cases import CASES
from tests.support import frame_corpus, live_group, raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.frame_proxy import PROXY_HOST, Recorder
from tests.support.java_clients import JavaClients
from tests.support.mqadmin import LiveClients, MqAdmin, compile_programs
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient, topic_fields
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.frame_corpus import Recorded

GET_ROUTE_BY_TOPIC = 105
JAVA_VERSIONS = ("4.9.7", "5.3.3")
VERSION = JAVA_VERSIONS[0]
GO_SOURCES = Path(__file__).resolve().parent.parent.parent / "interop" / "go"
PROGRAM_SECONDS = 180
COMMAND_SECONDS = 10.0
COMMANDS_OF_5 = (
    "queryMsgById -i {offset_id} -t orders",
    "queryMsgById -i {offset_id} -t orders -g live-consumer -d {client}",
    "queryMsgByUniqueKey -t orders -i {uniq} -c DefaultCluster",
    "haStatus -b {broker}",
    "getBrokerEpoch -b {broker}",
    "setConsumeMode -b {broker} -t orders -g live-consumer -m PULL -n 1",
    "listUser -b {broker}",
    "listAcl -b {broker}",
    "getColdDataFlowCtrInfo -b {broker}",
    "resetMasterFlushOffset -b {broker} -o 0",
    "getConsumerStatus -g live-consumer -t orders -i {client}",
    "resetOffsetByTime -b {broker} -g live-consumer -t orders -q 0 -s 0",
)
BINARY_HEADERS = "-Drocketmq.serialize.type=ROCKETMQ"
# A real broker registers every ten seconds or more, and a slave polls its master as often.
BROKER_SECONDS = 25
# The real broker does some work after its answer that the next request may depend on.
PAUSE_SECONDS = 0.1
KEYS: dict[str, object] = {
    "brokerIP1": PROXY_HOST,
    "enablePropertyFilter": "true",
    # A starting group sends more requests when its queues are on disk.
    "accessMessageInMemoryMaxRatio": 0,
    "messageDelayLevel": " ".join(["1s"] * 18),
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
}
NEUTRAL = re.compile(rb"127\.0\.0\.\d+|10\.0\.\d+\.\d+|192\.0\.2\.\d+")
ADDRESS = re.compile(rb"(?<![\d.])\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\d.])")


class Recording:
    """A broker, and the programs to run against it."""

    def __init__(self, directory: Path, broker: BrokerProcess) -> None:
        self.directory = directory
        self.broker = broker
        self.namesrv = f"{PROXY_HOST}:{broker.namesrv_port}"
        self.address = f"{PROXY_HOST}:{broker.port}"

    def create(self, topic: str, *, queues: int = 1, perm: int = 6) -> None:
        fields = {**topic_fields(topic, queues), "perm": str(perm)}
        with RawClient(self.broker.port) as client:
            assert client.ask(raw_remoting.UPDATE_AND_CREATE_TOPIC, fields).code == 0

    def topics_of_steps(self, suffix: str) -> None:
        self.create("read-only", perm=4)
        self.create("write-only", perm=2)
        for name in ("start-first", "start-last", "start-time", "start-young"):
            self.create(f"{name}{suffix}")

    def java(self, version: str, options: str, prefix: str) -> None:
        """Run all programs of one version of the Java client."""
        directory = self.directory / f"java-{version}"
        directory.mkdir(exist_ok=True)
        java = JavaClients(version, directory)
        java.build()
        self.topics_of_steps(version[0])
        if options:
            os.environ["JAVA_TOOL_OPTIONS"] = options
        try:
            # A step ends even if its results differ from those on an unused broker.
            java.run("Steps", self.namesrv, self.address, seconds=PROGRAM_SECONDS)
            live_group.facts_of(
                self.broker.port,
                f"{prefix}-live",
                lambda: java.start(
                    *("LiveConsumer", self.namesrv, f"{prefix}-live", f"{prefix}-live-group"),
                    stdin=subprocess.PIPE,
                ),
            )
            # A consumer that starts before its topic exists looks for it again after half a minute.
            for name in ("topic", "signed"):
                self.create(f"{prefix}-{name}")
            names = (self.namesrv, f"{prefix}-topic", f"{prefix}-group")
            java.run("DelayedMessages", *names, 4, 2, 20)
            java.run("Transactions", *names, 4, "t", 2, 20)
            java.run("RetryConsumer", *names, 1, 2, 2, 500, 15)
            self.create(f"{prefix}-asked")
            java.run("RequestReply", self.namesrv, f"{prefix}-asked", f"{prefix}-asking", 2)
            account = (f"{prefix}-signed", f"{prefix}-signers", "application", "12345678")
            java.run("SignedProducer", self.namesrv, *account, 3)
            consumer = (f"{prefix}-signed", f"{prefix}-selecting", "application", "12345678")
            java.run("SelectingConsumer", self.namesrv, *consumer, "price > 0", 1, 500, 10)
        finally:
            os.environ.pop("JAVA_TOOL_OPTIONS", None)

    def go(self) -> None:
        program = self.directory / "interop"
        subprocess.run(["go", "build", "-o", str(program), "."], cwd=GO_SOURCES, check=True)
        environment = {"HOME": str(self.directory), "PATH": "/usr/bin:/bin"}

        def run(*arguments: object) -> None:
            subprocess.run(
                [str(program), *map(str, arguments)],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=PROGRAM_SECONDS,
                check=True,
            )

        self.topics_of_steps("go")
        self.create("go-topic", queues=1)
        run("steps", self.namesrv, self.address)
        live_group.facts_of(
            self.broker.port,
            "go-live",
            lambda: subprocess.Popen(
                [str(program), "live", self.namesrv, "go-live", "go-live-group"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
            ),
        )
        names = (self.namesrv, "go-topic", "go-group")
        run("send", *names, 3, "m")
        run("delay", *names, 2, 1)
        run("consume", *names, 1, 2, 500, 20)
        run("transact", *names, 3, 8)
        run("pull", *names, "broker-a", 0, 0, 3)
        self.create("go-asked", queues=4)
        run("request", self.namesrv, "go-asked", "go-asked-group", 2, 10_000)
        run("signed", self.namesrv, "go-topic", "application", "12345678")

    def mqadmin(self, version: str, more: tuple[str, ...] = ()) -> None:
        """Run every command of mqadmin."""
        home = self.directory / f"mqadmin-{version}"
        home.mkdir()
        jars = compile_programs(version, home)
        self.create("orders", queues=2)
        with (
            LiveClients(jars, home, self.namesrv, "orders", "broker-a", 10) as live,
            ExitStack() as stack,
        ):
            mqadmin = stack.enter_context(MqAdmin(jars, home, self.namesrv))
            client = mqadmin.run("consumerConnection", "-g", "live-consumer").text
            names = {
                "uniq": live.ids["k1"][0],
                "offset_id": live.ids["k1"][1],
                "broker": self.address,
                "client": next(word for word in client.split() if word.endswith("@live")),
                "home": str(home),
            }
            for line in [*(case.command for case in CASES), *map(str.split, more)]:
                command = [part.format(**names) for part in line]
                try:
                    mqadmin.run(*command, seconds=COMMAND_SECONDS)
                except (AssertionError, BrokenPipeError):
                    # Some end the process if they miss an argument that only 5.x needs.
                    mqadmin = stack.enter_context(MqAdmin(jars, home, self.namesrv))

    def real_brokers(self) -> None:
        """Have a real master and a real slave register with our name server."""
        master = {"namesrvAddr": self.namesrv, "brokerName": "broker-b"}
        slave = {"namesrvAddr": self.namesrv, "brokerRole": "SLAVE", "brokerId": 1}
        with (
            Peer(VERSION, self.directory / "real-master", **master),
            Peer(VERSION, self.directory / "real-slave", **slave),
        ):
            time.sleep(BROKER_SECONDS)


def is_neutral(frame: bytes) -> bool:
    """Whether a frame reveals nothing about the recording machine."""
    if socket.gethostname().encode() in frame or str(Path.home()).encode() + b"/" in frame:
        return False
    return all(NEUTRAL.fullmatch(found) for found in ADDRESS.findall(frame))


async def recorded(target: list[str]) -> list[Recorded]:
    """Run the programs of the given clients, by default all; return their frames."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        broker = BrokerProcess(directory / "broker", **KEYS)
        broker.start()
        recorder = Recorder()
        run = Recording(directory, broker)
        runs: dict[str, Callable[[], None]] = {
            "go": run.go,
            "mqadmin-4.9.7": lambda: run.mqadmin(VERSION),
            "mqadmin-5.3.3": lambda: run.mqadmin(JAVA_VERSIONS[1], COMMANDS_OF_5),
            "broker-4.9.7": run.real_brokers,
        }
        for version in JAVA_VERSIONS:
            runs[f"java-{version}"] = lambda version=version: run.java(  # type: ignore[misc]
                version, "", f"java-{version[0]}"
            )
            runs[f"java-{version}-binary"] = lambda version=version: run.java(  # type: ignore[misc]
                version, BINARY_HEADERS, f"binary-{version[0]}"
            )
        try:
            for port, to in (
                (broker.port, "broker"),
                (broker.port - 2, "vip"),
                (broker.namesrv_port, "namesrv"),
            ):
                await recorder.listen(port, to)
            for client, program in runs.items():
                if not target or client in target:
                    say(client)
                    recorder.client = client
                    try:
                        await asyncio.to_thread(program)
                    except (AssertionError, subprocess.SubprocessError) as error:
                        # Keep the frames sent so far.
                        say(f"{client} broke off: {error}")
        finally:
            await recorder.close()
            broker.stop()
        return list(recorder.kept.values())


async def with_real_answers(frames: list[Recorded]) -> list[Recorded]:
    """Return one client's frames with the codes of a real broker's and name server's answers."""
    with tempfile.TemporaryDirectory() as name:
        with Peer(VERSION, Path(name) / "peer", enablePropertyFilter="true") as peer:
            ports = {"broker": peer.port, "vip": peer.port - 2, "namesrv": peer.namesrv_port}
            await asyncio.to_thread(until, lambda: has_route(peer.namesrv_port), "its route")
            replay = Replay(ports, pause_seconds=PAUSE_SECONDS)
            await replay.send(frames)
        await replay.close()
    answers = {place: head.code for place, head in replay.answers.items()}
    return [one._replace(real=answers.get(place)) for place, one in enumerate(frames)]


def has_route(namesrv_port: int) -> bool:
    """Whether the broker has registered; it listens earlier."""
    with RawClient(namesrv_port) as client:
        return client.ask(GET_ROUTE_BY_TOPIC, {"topic": "TBW102"}).code == 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    expected = sys.argv[1:]
    if expected == ["answers"]:
        kept = frame_corpus.everything()
    else:
        found = asyncio.run(recorded(expected))
        kept = [one for one in found if is_neutral(one.frame)]
        say(f"{len(found)} forms, {len(found) - len(kept)} name something of this machine")
    for client in sorted({one.client for one in kept}):
        frames = asyncio.run(with_real_answers([one for one in kept if one.client == client]))
        frame_corpus.write(client, frames)
        say(f"{client}: {len(frames)} frames, codes {sorted({one.code for one in frames})}")


if __name__ == "__main__":
    main()
