"""Measure pages with a real broker of many topics: server time, and requests per viewer.

    python -m tools.bench.pages [--topics 5000] [--groups 2000] [--connections 200] [--tries 9]
                                  [--only /topics/]

A broker runs with this many topics, groups and connected clients, together with the collector and
the console's web server. Each page is opened once, then timed from the request to the last byte of
the answer, including the broker's part. A second user opens each page right after the first, and
the resulting requests to broker and name server are counted, with 100 topics and with all of them.
The exit code is 1 if the median of a page is above its limit, or if a page sends more requests to
a broker with more topics. Takes minutes; times are only meaningful on an idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.error import HTTPError

import django

from broker_core.protocol.codes import RequestCode
from tests.support import addresses
from tests.support.appliance import Visitor
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.large_cluster import (
    CONNECTIONS,
    FILE_MS_MAX,
    GROUPS,
    GROUPS_MS_MAX,
    PAGE_MS_MAX,
    TOPICS,
)
from tests.support.raw_remoting import (
    SEND_MESSAGE,
    UPDATE_AND_CREATE_TOPIC,
    send_fields,
    topic_fields,
)
from tests.support.tapped_proxy import TappedProxy
from tests.support.web_process import WebProcess
from tools.bench.pages.clients import Clients, heartbeat, pipelined
from tools.results.machine import about

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FEW = 100
TRIES = 9
DEAD = 50
COUNTS = 3
CPUCLOCK_SCHED = 2
TEXT_CHARACTERS = 300
OPENED_TIMES = 5
GROUPS_PAGE = "groups:list"
AS_FILE = "?as=csv"
IDLE, BODY = "idle", b'{"order": 1}'
SAMPLED_SECONDS = 30.0
"""By then the collector has sampled the new objects twice."""
# Parts that pages load later or poll, other than pages.
PARTS: dict[str, tuple[str, ...]] = {
    "overview:summary": ("",),
    "topics:queues": ("",),
    "groups:progress": ("",),
    "groups:subscriptions": ("",),
    "palette:entries": ("?q=t-0005",),
    "topics:list": ("?sort=-lag", "?q=t-0005", "?as=csv"),
    "groups:list": ("?sort=-lag", "?q=g-0005", "?as=csv"),
}
KEYS: dict[str, int | str] = {
    **addresses.KEYS,
    "topic": "t-00050",
    "group": "g-00050",
    "offset": 0,
    # The second of the clients, which stay connected.
    "member": "10.0.0.1@1",
    "member_group": "g-00001",
}


class PageError(Exception):
    """A page failed to load."""


class Cost(NamedTuple):
    """A page's cost: milliseconds of each try, and average CPU time of the server."""

    tries_ms: list[float]
    processor_ms: float

    @property
    def median_ms(self) -> float:
        return statistics.median(self.tries_ms)


class Measured(NamedTuple):
    """A page's limit and cost, and the requests of one more viewer with few topics and with all."""

    path: str
    ms_max: int
    cost: Cost
    few: int
    many: int

    @property
    def wrong(self) -> str:
        return " SLOW" * (self.cost.median_ms > self.ms_max) + " GROWS" * (self.many > self.few)


class Counter:
    """A tap that counts requests; a proxy thread sees one direction."""

    def __init__(self) -> None:
        self.requests = 0
        self._streams = threading.local()

    def __call__(self, is_from_client: bool, data: bytes) -> bytes:
        if is_from_client:
            self._count(data)
        return data

    def _count(self, data: bytes) -> None:
        rest: bytearray = self._streams.__dict__.setdefault("rest", bytearray())
        rest += data
        while len(rest) >= 4:
            (length,) = struct.unpack_from(">i", rest)
            if len(rest) < 4 + length:
                break
            del rest[: 4 + length]
            self.requests += 1


def fill(port: int, topics: range, groups: range, all_topics: int) -> None:
    """Create topics of two queues with a message each, and groups that have each read one."""
    names = [f"t-{number:05d}" for number in topics]
    pipelined(port, [(UPDATE_AND_CREATE_TOPIC, topic_fields(name, 2), b"") for name in names])
    sends = [
        (SEND_MESSAGE, send_fields(name, queue_id=queue_id, properties=f"KEYS\x01{name}"), BODY)
        for name in names
        for queue_id in range(2)
    ]
    pipelined(port, sends)
    made = [
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            None,
            json.dumps({"groupName": f"g-{number:05d}"}).encode(),
        )
        for number in groups
    ]
    pipelined(port, made)
    pipelined(
        port,
        [offset(f"g-{number:05d}", f"t-{number % all_topics:05d}", 1) for number in groups],
    )


def offset(group: str, topic: str, value: int) -> tuple[int, dict[str, str], bytes]:
    place = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    return RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": str(value)}, b""


def keys_of(web: WebProcess, port: int) -> dict[str, int | str]:
    """Create one of each object that the console stores; return the keys for pages."""
    code = (
        "from json import dumps; from tests.support import sampled_runs, console_objects; "
        "print(dumps(console_objects.make() | sampled_runs.make()))"
    )
    made = json.loads(web.run("manage", "shell", "--no-imports", "-c", code).splitlines()[-1])
    group = json.dumps({"groupName": IDLE}).encode()
    dead = f"%DLQ%{KEYS['group']}"
    pipelined(port, [(UPDATE_AND_CREATE_TOPIC, topic_fields(dead, 1), b"")])
    pipelined(port, [(SEND_MESSAGE, send_fields(dead), BODY)] * DEAD)
    pipelined(port, [(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)])
    pipelined(port, [offset(IDLE, "t-00000", 1)])
    visitor = Visitor(web.url)
    visitor.sign_in()
    plan = visitor.read(f"/offsets/preview/?group={IDLE}&topic=t-00000&mode=earliest")
    token = re.search(r'name="token" value="([^"]+)"', plan)
    assert token is not None
    visitor.post("/offsets/apply/", token=token[1])
    entry = re.search(r"/offsets/restore/(\d+)/", visitor.read("/audit/"))
    assert entry is not None
    return {**KEYS, **made, "entry": entry[1]}


def pages(keys: Mapping[str, int | str]) -> dict[str, str]:
    """Return the name of each page and of the parts it loads later, by path."""
    return {
        addresses.path_of(name, query, keys): name
        for table in (addresses.PAGES, PARTS)
        for name, queries in table.items()
        for query in queries
    }


def opened(visitor: Visitor, path: str) -> None:
    """Open a page, retrying if the machine was too busy for the broker to answer in time.

    Raises:
        PageError: it failed to load.
    """
    for left in reversed(range(OPENED_TIMES)):
        try:
            visitor.read(path)
        except HTTPError as error:
            if left and error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                continue
            text = re.sub(r"<[^>]*>|\s+", " ", error.read().decode().partition("<main")[2])
            raise PageError(f"{path}: {error.code} {text[:TEXT_CHARACTERS]}") from error
        return


def requests_of(
    first: Visitor, second: Visitor, paths: Iterable[str], counter: Counter
) -> dict[str, int]:
    """Return the requests that each page sends when a second user opens it right after the first.

    This is the minimum of some tries, because sometimes the console refreshes everything.
    """
    found = {}
    for path in paths:
        opened(first, path)
        counts = []
        for _ in range(COUNTS):
            before = counter.requests
            opened(second, path)
            counts.append(counter.requests - before)
        found[path] = min(counts)
    return found


def limit_of(name: str, path: str) -> int:
    if path.endswith(AS_FILE):
        return FILE_MS_MAX
    return GROUPS_MS_MAX if name == GROUPS_PAGE else PAGE_MS_MAX


def processor_seconds(pid: int) -> float:
    """Return a process's CPU time so far, including ended threads."""
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def cost_of(visitor: Visitor, path: str, pid: int, tries: int) -> Cost:
    opened(visitor, path)
    before, durations = processor_seconds(pid), []
    for _ in range(tries):
        began = time.perf_counter()
        opened(visitor, path)
        durations.append((time.perf_counter() - began) * 1_000)
    return Cost(durations, (processor_seconds(pid) - before) / tries * 1_000)


@contextlib.contextmanager
def collecting(web: WebProcess) -> Iterator[None]:
    """Run the collector of a console."""
    with (web.log.parent / "collector.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "collect"],
            cwd=ROOT,
            env=web.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def measure(arguments: argparse.Namespace) -> list[Measured]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = BrokerProcess(directory / "broker")
        broker.start()
        stack.callback(broker.kill)
        counter = Counter()
        # The console reaches the broker under its own address, through the proxies.
        to_broker = stack.enter_context(TappedProxy(broker.port, counter))

        def rewrite_addresses(is_from_client: bool, data: bytes) -> bytes:
            counter(is_from_client, data)
            ours, theirs = f":{broker.port}", f":{to_broker.port}"
            assert len(ours) == len(theirs), "ports of one length keep frames as long as they are"
            return data if is_from_client else data.replace(ours.encode(), theirs.encode())

        to_namesrv = stack.enter_context(TappedProxy(broker.namesrv_port, rewrite_addresses))
        few = min(FEW, arguments.topics)
        fill(broker.port, range(few), range(min(few, arguments.groups)), few)
        web = WebProcess(directory, TREBUCHET_NAMESRV=to_namesrv.address)
        web.start()
        stack.callback(web.stop)
        keys = keys_of(web, broker.port)
        order = {"namespace": str(KEYS["namespace"]), "key": str(KEYS["topic"]), "value": "a:2"}
        pipelined(broker.namesrv_port, [(RequestCode.PUT_KV_CONFIG, order, b"")])
        beats = [
            heartbeat(number, f"t-{number % few:05d}", f"g-{number % few:05d}")
            for number in range(arguments.connections)
        ]
        stack.enter_context(Clients(broker.port, beats))
        stack.enter_context(collecting(web))
        first, second = Visitor(web.url), Visitor(web.url)
        first.sign_in()
        second.sign_in()
        names = {path: name for path, name in pages(keys).items() if arguments.only in path}
        asked_of_few = requests_of(first, second, names, counter)
        fill(
            broker.port,
            range(few, arguments.topics),
            range(few, arguments.groups),
            arguments.topics,
        )
        time.sleep(SAMPLED_SECONDS)
        asked_of_all = requests_of(first, second, names, counter)
        return [
            Measured(
                path,
                limit_of(name, path),
                cost_of(first, path, web.pid, arguments.tries),
                asked_of_few[path],
                asked_of_all[path],
            )
            for path, name in names.items()
        ]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--only", default="", help="measure only pages whose address contains this")
    arguments = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.support.settings")
    django.setup()
    found = sorted(measure(arguments), key=lambda each: -each.cost.median_ms)
    print(", ".join(f"{key} {value}" for key, value in about().items()))
    print(
        f"{arguments.topics} topics, {arguments.groups} groups, {arguments.connections} connections"
    )
    print("  median    worst      CPU   requests at")
    print(f"      ms       ms       ms {FEW:>6} {arguments.topics:>6}  page")
    for each in found:
        print(
            f"{each.cost.median_ms:8.1f} {max(each.cost.tries_ms):8.1f} "
            f"{each.cost.processor_ms:8.1f} {each.few:6} {each.many:6}  {each.path}{each.wrong}"
        )
    return 1 if any(each.wrong for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
