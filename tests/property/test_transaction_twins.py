"""Half messages and their ends: the compiled turn and its Python twin have the same results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support import pull_frames, send_frames, transaction_frames
from tests.support.native_turn import Terms
from tests.support.twins import TOPICS, Pair, configuration, is_compiled, settled

if TYPE_CHECKING:
    import random

    from broker_core.transaction.half import Half
    from tests.support.twins import Twin

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="no compiled turn: python -m broker_core.native.build"
)

ROUNDS = 60
FRAMES_A_ROUND = 12
HALVES_KEPT = 60
"""Decided ones are ended again."""


def a_stream(rng: random.Random, halves: list[Half], opaque: int) -> bytes:
    """Return half messages, ends of earlier ones, and other requests."""
    stream = b""
    for number in range(opaque, opaque + FRAMES_A_ROUND):
        match rng.randrange(5):
            case 0 | 1:
                stream += transaction_frames.any_half(rng, TOPICS, number)
            case 2 | 3 if halves:
                frame = transaction_frames.any_end(rng, halves, number)
                stream += send_frames.damaged(rng, frame) if rng.random() < 0.05 else frame
            case _:
                stream += pull_frames.any_request(rng, TOPICS, number)
    return stream


def note_halves(halves: list[Half], twin: Twin) -> None:
    """Store undecided half messages before they are decided."""
    known = {half.queue_offset for half in halves}
    pending = twin.parts.transactions.pending
    halves += [replace(half) for offset, half in pending.items() if offset not in known]
    del halves[:-HALVES_KEPT]


def renew_one(twin: Twin, queue_offset: int) -> None:
    """Act like a check: put a copy of a half message at the queue's end."""
    transactions = twin.parts.transactions
    half = transactions.pending[queue_offset]
    message = transactions.read(half)
    assert message is not None
    times = {"TRANSACTION_CHECK_TIMES": str(half.check_times + 1)}
    transactions.renew(half, message, {**message.properties, **times})


@pytest.mark.parametrize(
    ("keys", "peer"),
    [
        ({}, ("10.0.0.1", 1234)),
        ({"brokerIP1": "2001:db8::1"}, ("10.0.0.1", 1234)),
        ({}, ("2001:db8::2", 65535)),
        ({"messageIndexEnable": "false"}, ("10.0.0.1", 1)),
        ({"mappedFileSizeConsumeQueue": 2000, "mappedFileSizeCommitLog": 1 << 17}, ("1.2.3.4", 1)),
        ({"maxIndexNum": 300}, ("1.2.3.4", 1)),
        ({"enabledAppendPropCRC": "true"}, ("1.2.3.4", 1)),
        ({"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": 65536}, ("1.2.3.4", 1)),
        ({"rejectTransactionMessage": "true"}, ("1.2.3.4", 1)),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else value[0],
)
async def test_transactions_in_random_pieces_leave_the_same(
    keys: dict[str, object], peer: tuple[str, int], rng: random.Random
) -> None:
    halves: list[Half] = []
    async with Pair(configuration(**keys), peer=peer) as pair:
        for number in range(ROUNDS):
            for piece in send_frames.pieces(rng, a_stream(rng, halves, number * 1000)):
                await pair.feed(piece)
            seen = pair.same()
            note_halves(halves, pair.native)
            if number % 8 == 7 and seen["undecided"]:
                queue_offset = rng.choice(seen["undecided"])[1]
                renew_one(pair.native, queue_offset)
                renew_one(pair.python, queue_offset)
            pair.advance_ms(rng.randrange(3))
            if pair.native.transport.closed:
                pair.reconnect()
        for twin in (pair.native, pair.python):
            # The basis of the progress is committed as offsets.
            await twin.parts.transactions.settle_all()
        pair.same()


async def test_half_messages_waiting_for_a_slave_leave_the_same(rng: random.Random) -> None:
    halves: list[Half] = []
    async with Pair(configuration()) as pair:
        stores = [twin.parts.store for twin in (pair.native, pair.python)]
        for store in stores:
            store.take_role(is_slave=False, terms=Terms())
            store.acknowledge.replicated(0)
        for number in range(ROUNDS):
            await pair.feed(a_stream(rng, halves, number * 1000))
            note_halves(halves, pair.native)
            for store in stores if number % 4 else ():
                store.acknowledge.replicated(store.max_commit_log_offset)
            await settled()
            pair.same()
            if pair.native.transport.closed:
                pair.reconnect()
        for store in stores:
            store.acknowledge.fail()
        await settled()
        assert pair.same()["in_flight"] == 0
