"""A store with ConsumeQueue extensions moves from the real broker to ours, is killed, and back."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from broker_core.formats.cq_ext_unit import ADDRESS_BASE, CqExtUnit, decode
from broker_core.formats.cq_unit import UNIT
from broker_core.protocol.codes import ResponseCode
from broker_core.verify.verifier import verify
from tests.conftest import require_java
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.client import Client, messages
from tests.support.peer import Peer
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

TOPIC = "extended"
ROUND = 100
EXT_FILE_SIZE = 1000
KEYS: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 2_000,
    "mappedFileSizeConsumeQueueExt": EXT_FILE_SIZE,
    "maxHashSlotNum": 100,
    "maxIndexNum": 1000,
    "brokerIP1": "127.0.0.1",
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "enablePropertyFilter": "true",
}
GROUPS = {"dear": "price > 70", "cheap": "price <= 20 AND region = 'eu'", "none": "missing = 1"}
EXTENSION_LINE = re.compile(
    r"extend(?!ed)|ConsumeQueueExt|\bext\b|(?<!to calc )bit map|bloom", re.IGNORECASE
)
"""The time for a bitmap depends on the machine's load."""


class Message(NamedTuple):
    """The number is the price."""

    number: int

    @property
    def properties(self) -> dict[str, str]:
        region = "eu" if self.number % 2 else "us"
        return {"TAGS": f"T{self.number % 5}", "price": f"{self.number}", "region": region}

    def is_wanted(self, group: str) -> bool:
        if group == "dear":
            return self.number > 70
        return group == "cheap" and self.number <= 20 and self.number % 2 == 1


async def subscribe(client: Client) -> None:
    """Subscribe all groups; a heartbeat names one, because clients have one each."""
    for group, expression in GROUPS.items():
        answer = await client.heartbeat(
            f"client-{group}",
            consumer_groups={group: {TOPIC: expression}},
            expression_type="SQL92",
            sub_version=7,
        )
        assert answer.code == ResponseCode.SUCCESS, answer


async def send_round(client: Client) -> None:
    for number in range(ROUND):
        message = Message(number)
        answer = await client.send(TOPIC, b"%d" % number, queue_id=0, **message.properties)
        assert answer.code == ResponseCode.SUCCESS, answer


async def read(client: Client, **pull: object) -> list[int]:
    """Pull a queue to its end; return the numbers of the messages."""
    found: list[int] = []
    offset = 0
    while True:
        answer = await client.pull(TOPIC, offset, **pull)  # type: ignore[arg-type]
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return found
        if answer.code == ResponseCode.SUCCESS:
            found += [int(message.body) for message in messages(answer)]
        else:
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY, answer
        offset = int(answer.ext_fields["nextBeginOffset"])


async def use(port: int, rounds: int) -> None:
    """Subscribe, read earlier rounds' messages, send one more."""
    client = Client(f"127.0.0.1:{port}")
    await subscribe(client)
    await check(client, rounds)
    # Bitmaps apply to messages of a later millisecond than the filter's.
    await asyncio.sleep(0.01)
    await send_round(client)
    await check(client, rounds + 1)
    await client.shutdown()


async def check(client: Client, rounds: int) -> None:
    """Check that each filter finds its messages once they are dispatched."""
    for group in GROUPS:
        expected = [number for number in range(ROUND) if Message(number).is_wanted(group)] * rounds
        found = await read(client, group=group, subscription=None, sub_version=7)
        for _ in range(50):
            if len(found) >= len(expected):
                break
            await asyncio.sleep(0.1)
            found = await read(client, group=group, subscription=None, sub_version=7)
        assert found == expected, group
    tagged = [number for number in range(ROUND) if number % 5 == 3] * rounds
    assert await read(client, group="other", subscription="T3") == tagged


def stored_extensions(store: Path) -> list[CqExtUnit | None]:
    """Return the extensions of the queue's units, read from the files."""
    files = {
        int(path.name): path.read_bytes()
        for path in (store / "consumequeue_ext" / TOPIC / "0").iterdir()
    }
    found = []
    for path in sorted((store / "consumequeue" / TOPIC / "0").iterdir()):
        for _, size, address in UNIT.iter_unpack(path.read_bytes()):
            if size > 0:
                position = (address - ADDRESS_BASE) % EXT_FILE_SIZE
                found.append(decode(files[address - ADDRESS_BASE - position], position))
    return found


async def with_theirs(directory: Path, store: Path, rounds: int) -> None:
    keys = {**KEYS, "storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    with Peer("4.9.7", directory, **keys) as theirs:
        theirs.ends_in_order = True
        if not rounds:
            raw_remoting.create_topic(theirs.port, TOPIC, queues=1)
        await use(theirs.port, rounds)
    lines = (directory / "broker.log").read_text(errors="replace").splitlines()
    assert [line for line in lines if EXTENSION_LINE.search(line)] == []


async def with_ours(ours: BrokerProcess, rounds: int) -> None:
    ours.start()
    try:
        await use(ours.port, rounds)
    finally:
        ours.kill()


def contents(units: list[CqExtUnit | None]) -> list[tuple[int, bytes]]:
    return [(unit.tags_code, unit.bit_map) for unit in units if unit is not None]


def filters_of(store: Path) -> dict[str, object]:
    """Return the time-independent part of consumerFilter.json."""
    table = json.loads((store / "config" / "consumerFilter.json").read_text())
    groups = table["filterDataByTopic"][TOPIC]["groupFilterData"]
    changing = {"deadTime", "dead"}
    return {
        group: {key: value for key, value in one.items() if key not in changing}
        for group, one in groups.items()
    }


async def test_a_store_with_extensions_moves_from_the_real_broker_to_ours_and_back(
    tmp_path: Path,
) -> None:
    require_java()
    store = tmp_path / "store"

    await with_theirs(tmp_path / "theirs", store, 0)
    theirs = stored_extensions(store)
    filters = filters_of(store)
    assert verify(store).problems == []
    assert len(contents(theirs)) == ROUND
    assert len({bit_map for _, bit_map in contents(theirs)}) == 3

    ours = BrokerProcess(tmp_path / "ours", **{**KEYS, "storePathRootDir": store})
    await with_ours(ours, 1)
    # It was killed: the next start recovers.
    ours.start()
    ours.stop()
    assert verify(store).problems == []
    both = stored_extensions(store)
    assert both[:ROUND] == theirs
    assert contents(both[ROUND:]) == contents(theirs)
    assert filters_of(store) == filters
    assert [line for line in ours.words().splitlines() if " ERROR " in line] == []

    await with_theirs(tmp_path / "theirs-again", store, 2)
    until(lambda: not (store / "abort").exists(), "the real broker to end")
    assert verify(store).problems == []
    all_three = stored_extensions(store)
    assert all_three[: 2 * ROUND] == both
    assert contents(all_three[2 * ROUND :]) == contents(theirs)
