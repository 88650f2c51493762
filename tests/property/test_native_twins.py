"""The compiled turn and its Python twin leave the same bytes, answers and counts."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.config.loading import build
from tests.support import pull_frames, send_frames
from tests.support.twins import LISTENED, Twin, is_compiled, settled
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from broker_core.config.configuration import Configuration

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)

TOPICS = ("Orders", "größe", LISTENED)
ROUNDS = 6
FRAMES_A_ROUND = 100
FUZZED_FRAMES = int(os.environ.get("TREBUCHET_FUZZED_FRAMES", "20000"))
FRAMES_A_TURN = 8
FRAMES_A_LOOK = 400


def configuration(**keys: object) -> Configuration:
    table = {
        "storePathRootDir": "/data",
        "autoCreateTopicEnable": "false",
        "maxMessageSize": 4500,
        "mappedFileSizeConsumeQueue": 60_000,
        "mappedFileSizeCommitLog": 1 << 20,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
        **keys,
    }
    configuration, errors = build({key: str(value) for key, value in table.items()})
    assert not errors, [str(error) for error in errors]
    return configuration


class Pair:
    """Both twins, fed alike."""

    def __init__(self, configuration: Configuration, **more: Any) -> None:
        self.native = Twin(configuration, is_native=True, **more)
        self.python = Twin(configuration, is_native=False, **more)
        self._fed = 0

    async def __aenter__(self) -> Pair:
        for twin in (self.native, self.python):
            await twin.load(*TOPICS)
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        native, python = [await twin.shutdown() for twin in (self.native, self.python)]
        if kind is not None:
            return
        assert native.keys() == python.keys()
        assert [path for path in native if native[path] != python[path]] == []

    async def feed(self, data: bytes, *, settle: bool = True) -> None:
        self._fed += 1
        for twin in (self.native, self.python):
            # A send to any queue goes to one by chance.
            random.seed(self._fed)
            twin.receive(data)
        if settle:
            await settled()

    def reconnect(self) -> None:
        for twin in (self.native, self.python):
            twin.connect()

    def same(self) -> dict[str, Any]:
        """Return what is seen of both, which is the same."""
        native, python = self.native.seen(), self.python.seen()
        for name, value in native.items():
            assert value == python[name], name
        return native

    def advance_ms(self, milliseconds: int) -> None:
        for twin in (self.native, self.python):
            twin.clock.advance_ms(milliseconds)


def puts_by_native(pair: Pair) -> int:
    """Return how many messages the compiled turn put, which Python's twin did not see."""
    return pair.native.parts.store.files.put_state.put_times


@pytest.mark.parametrize(
    ("keys", "peer"),
    [
        ({}, ("10.0.0.1", 1234)),
        ({"brokerIP1": "2001:db8::1"}, ("10.0.0.1", 1234)),
        ({}, ("2001:db8::2", 65535)),
        ({"messageIndexEnable": "false", "regionId": 'R%d"é'}, ("10.0.0.1", 1)),
        ({"mappedFileSizeConsumeQueue": 2000, "mappedFileSizeCommitLog": 1 << 17}, ("1.2.3.4", 1)),
        ({"maxIndexNum": 300}, ("1.2.3.4", 1)),
        ({"enabledAppendPropCRC": "true"}, ("1.2.3.4", 1)),
        ({"maxTransferCountOnMessageInMemory": 5, "slaveReadEnable": "true"}, ("1.2.3.4", 1)),
        ({"maxTransferBytesOnMessageInMemory": 3000}, ("1.2.3.4", 1)),
        ({"longPollingEnable": "false"}, ("1.2.3.4", 1)),
        ({"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": 65536}, ("1.2.3.4", 1)),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else value[0],
)
async def test_mixed_frames_in_random_pieces_leave_the_same(
    keys: dict[str, object], peer: tuple[str, int], rng: random.Random
) -> None:
    async with Pair(configuration(**keys), peer=peer) as pair:
        opaque = 0
        for _ in range(ROUNDS):
            stream = b""
            for _ in range(FRAMES_A_ROUND):
                opaque += 1
                stream += pull_frames.any_request(rng, TOPICS, opaque - 50)
            for piece in send_frames.pieces(rng, stream):
                await pair.feed(piece)
            pair.same()
            pair.advance_ms(rng.randrange(3))
            for twin in (pair.native, pair.python):
                twin.clock.step_wall_clock_ms(-(opaque % 2))
        assert not pair.native.transport.closed


class Terms:
    """One slave, which may fall behind by so many bytes."""

    slaves = 1
    timeout_s = 3.0

    def __init__(self, fall_behind_max: int) -> None:
        self.fall_behind_max = fall_behind_max


@pytest.mark.parametrize("fall_behind_max", [1 << 28, 20_000])
async def test_sends_that_wait_for_a_slave_leave_the_same(
    fall_behind_max: int, rng: random.Random
) -> None:
    async with Pair(configuration()) as pair:
        stores = [twin.parts.store for twin in (pair.native, pair.python)]
        for store in stores:
            store.take_role(is_slave=False, terms=Terms(fall_behind_max))
            store.acknowledge.replicated(0)
        for number in range(ROUNDS * 8):
            stream = b"".join(
                pull_frames.any_request(rng, TOPICS, number * 100 + each) for each in range(20)
            )
            for piece in send_frames.pieces(rng, stream):
                await pair.feed(piece)
            for store in stores if number % 8 else ():
                store.acknowledge.replicated(store.max_commit_log_offset if number % 9 else -1)
            if number % 5 == 0:
                pair.advance_ms(3_100)
            await settled()
            pair.same()
        for store in stores:
            store.acknowledge.fail()
        await settled()
        assert pair.same()["in_flight"] == 0


async def until_durable(twin: Twin) -> None:
    """Wait for the disk's thread: puts that nobody waits for are shown after their flush, too."""
    log = twin.parts.store.files.log
    await until_async(
        lambda: not twin.wire.in_flight and log.flushed_where == log.max_offset, "the disk"
    )


async def test_sends_that_wait_for_the_disk_leave_the_same(rng: random.Random) -> None:
    async with Pair(configuration(flushDiskType="SYNC_FLUSH")) as pair:
        for number in range(ROUNDS):
            for each in range(40):
                await pair.feed(send_frames.any_frame(rng, TOPICS, number * 100 + each) * 3)
            await until_durable(pair.native)
            await until_durable(pair.python)
            await settled()
        native, python = pair.native.seen(), pair.python.seen()
        # The disk's thread decides how many are answered at one time, and who is woken when.
        for seen in (native, python):
            seen["answers"] = sorted(send_frames.frames_in(seen["answers"]))
            del seen["attempts"], seen["read_limit"]
        assert native == python


async def test_fuzzed_frames_leave_the_same(rng: random.Random) -> None:
    async with Pair(configuration()) as pair:
        for number in range(FUZZED_FRAMES):
            data = pull_frames.any_request(rng, TOPICS, number)
            if rng.random() < 0.7:
                data = send_frames.damaged(rng, data)
            await pair.feed(data, settle=number % FRAMES_A_TURN == 0)
            if number % FRAMES_A_LOOK == 0:
                pair.same()
            if pair.native.transport.closed:
                assert pair.native.transport.written == pair.python.transport.written
                pair.reconnect()
        pair.same()
