from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from broker_core.clock import SteadyClock
from broker_core.errors import RequestRefusedError
from broker_core.message.names import RMQ_SYS_TRANS_OP_HALF_TOPIC
from broker_core.message.sys_flag import TRANSACTION_COMMIT_TYPE as COMMITTED_FLAG
from broker_core.protocol.codes import ResponseCode
from broker_core.store.results import PutMessageResult, PutMessageStatus
from broker_core.transaction.half import PlainHalf, key_of_message, withhold
from broker_core.transaction.resolve import Transactions
from tests.support.builders import HOST, put
from tests.support.transaction_store import CHECK_MAX, COMMIT, FAILED, GROUP, ROLLBACK, Transacted

if TYPE_CHECKING:
    import random

    from broker_core.message.message import MessageExt
    from broker_core.transaction.half import Outcome
    from tests.support.clock import ManualClock
    from tests.support.faulty_storage import FaultyStorage


def refuse_op_messages(transacted: Transacted, monkeypatch: pytest.MonkeyPatch) -> None:
    real = transacted.store.put_message

    def put_message(topic: str, *args: Any, **kwargs: Any) -> PutMessageResult:
        if topic == RMQ_SYS_TRANS_OP_HALF_TOPIC:
            return FAILED
        return real(topic, *args, **kwargs)

    monkeypatch.setattr(transacted.store, "put_message", put_message)


async def test_a_half_message_is_only_in_its_own_queue(transacted: Transacted) -> None:
    transacted.send(KEYS="k", UNIQ_KEY="U")

    assert transacted.bodies() == []
    assert transacted.store.query_message("T", "k", 32, 0, 1 << 60) == []
    assert transacted.store.query_message("T", "U", 32, 0, 1 << 60) == []


async def test_commit_stores_the_message_in_its_queue_once(transacted: Transacted) -> None:
    half = transacted.send(b"body", "T", 5, TAGS="A", WAIT="true")

    assert transacted.refusal(half, COMMIT) is None

    (message,) = transacted.arrived("T", 5)
    (prepared,) = transacted.half_queue()
    assert (message.body, message.flag, message.sys_flag) == (b"body", 7, 8)
    assert message.prepared_transaction_offset == half.commit_log_offset
    assert message.properties == prepared.properties
    assert message.properties["REAL_TOPIC"] == "T"
    assert (prepared.sys_flag, prepared.prepared_transaction_offset) == (0, 0)
    ((_, _, tags_code),) = transacted.store.units("T", 5, 0, 1)
    assert tags_code == ord("A")
    (op,) = transacted.arrived(RMQ_SYS_TRANS_OP_HALF_TOPIC)
    assert (op.body, op.properties) == (b"0", {"WAIT": "true", "TAGS": "d"})


async def test_a_rollback_leaves_nothing_visible(transacted: Transacted) -> None:
    half = transacted.send()

    assert transacted.refusal(half, ROLLBACK) is None

    assert transacted.bodies() == []
    assert not transacted.transactions.pending


@pytest.mark.parametrize(
    ("group", "queue_offset", "shift", "refusal"),
    [
        ("other", 0, 0, "The producer group wrong"),
        (GROUP, 1, 0, "The transaction state table offset wrong"),
        (GROUP, 0, 1, "Find prepared transaction message failed"),
        (GROUP, 0, 1 << 40, "Find prepared transaction message failed"),
    ],
)
@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_an_end_that_does_not_match_the_half_message_is_rejected(
    transacted: Transacted,
    group: str,
    queue_offset: int,
    shift: int,
    refusal: str,
    outcome: Outcome,
) -> None:
    half = transacted.send()

    with pytest.raises(RequestRefusedError) as refused:
        transacted.transactions.end(group, queue_offset, half.commit_log_offset + shift, outcome)

    assert refused.value.remark == refusal
    assert transacted.bodies() == []
    assert transacted.refusal(half, COMMIT) is None
    assert transacted.bodies() == [b"half"]


async def test_an_end_for_another_message_is_rejected(transacted: Transacted) -> None:
    """Otherwise anyone could put any stored message again."""
    plain = put(transacted.store, "T", more={"PGROUP": GROUP, "REAL_TOPIC": "T", "REAL_QID": "0"})

    assert transacted.refusal(plain, COMMIT) == "Find prepared transaction message failed"
    assert len(transacted.bodies()) == 1


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
async def test_the_first_outcome_stays(
    transacted: Transacted,
    clock: ManualClock,
    storage: FaultyStorage,
    first: Outcome,
    is_restarted: bool,
) -> None:
    half = transacted.send()
    transacted.end(half, first)
    expected = [b"half"] if first is COMMIT else []
    again = transacted
    if is_restarted:
        again = Transacted(clock, storage.crash())
        await again.start()

    opposite = ROLLBACK if first is COMMIT else COMMIT

    assert again.refusal(half, first) is None
    assert again.refusal(half, opposite) == f"the transaction was {first.value}"
    assert again.bodies() == expected
    if is_restarted:
        await again.stop()


async def test_an_end_of_the_original_decides_its_copies(transacted: Transacted) -> None:
    half = transacted.send()
    (copy,) = await transacted.round()

    assert transacted.refusal(half, COMMIT) is None
    assert transacted.refusal(copy, COMMIT) is None

    assert transacted.bodies() == [b"half"]
    assert await transacted.round() == []


async def test_a_late_end_for_the_original_changes_nothing(transacted: Transacted) -> None:
    half = transacted.send()
    (copy,) = await transacted.round()
    transacted.end(copy, ROLLBACK)

    assert transacted.refusal(half, COMMIT) == "the transaction was rolled back"

    assert transacted.bodies() == []


async def test_a_kill_between_message_and_op_message_does_not_commit_twice(
    transacted: Transacted,
    clock: ManualClock,
    storage: FaultyStorage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = transacted.send()
    killed: list[FaultyStorage] = []
    real = transacted.store.put_message

    def put_message(topic, *args, **kwargs):
        if topic == RMQ_SYS_TRANS_OP_HALF_TOPIC:
            killed.append(storage.crash())
        return real(topic, *args, **kwargs)

    monkeypatch.setattr(transacted.store, "put_message", put_message)
    transacted.end(half, COMMIT)

    again = Transacted(clock, killed[0])
    await again.start()

    assert again.bodies() == [b"half"]
    assert len(again.arrived(RMQ_SYS_TRANS_OP_HALF_TOPIC)) == 1
    assert again.refusal(half, COMMIT) is None
    assert again.refusal(half, ROLLBACK) == "the transaction was committed"
    assert await again.round() == []
    assert again.bodies() == [b"half"]
    await again.stop()


async def test_a_kill_between_copy_and_op_message_only_checks_the_copy(
    transacted: Transacted,
    clock: ManualClock,
    storage: FaultyStorage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RocketMQ never writes that op message, so its stores look like this."""
    half = transacted.send()
    refuse_op_messages(transacted, monkeypatch)
    await transacted.round()

    again = Transacted(clock, storage.crash())
    await again.start()

    (check,) = await again.round()
    assert check.message.properties["TRANSACTION_CHECK_TIMES"] == "2"
    assert again.refusal(half, COMMIT) is None
    assert again.refusal(check, COMMIT) is None
    assert again.bodies() == [b"half"]
    await again.stop()


async def test_a_rejected_put_leaves_the_transaction_undecided(transacted: Transacted) -> None:
    half = transacted.send()
    with transacted.refused_copies():
        ended = transacted.end(half, COMMIT)

    assert ended is not None
    assert ended.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert transacted.refusal(half, ROLLBACK) is None
    assert transacted.bodies() == []


async def test_an_unwritable_op_message_is_written_later(
    transacted: Transacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = transacted.send()
    with monkeypatch.context() as patch:
        refuse_op_messages(transacted, patch)
        transacted.end(half, COMMIT)
        assert transacted.refusal(half, ROLLBACK) == "the transaction was committed"
        assert await transacted.round() == []

    await transacted.round()

    assert transacted.bodies() == [b"half"]
    assert not transacted.transactions.pending
    assert len(transacted.arrived(RMQ_SYS_TRANS_OP_HALF_TOPIC)) == 1


async def test_two_identical_messages_are_two_transactions(
    transacted: Transacted,
) -> None:
    halves = [transacted.send(UNIQ_KEY="same") for _ in range(2)]

    for half in halves:
        assert transacted.refusal(half, COMMIT) is None

    assert transacted.bodies() == [b"half", b"half"]


async def test_no_power_cut_forgets_a_committed_message(
    clock: ManualClock, storage: FaultyStorage, rng: random.Random
) -> None:
    """Progress is committed after the outcomes that it covers are durable."""
    transacted = Transacted(clock, storage, flush_disk_type="SYNC_FLUSH")
    await transacted.start()
    halves = [transacted.send(b"%d" % number) for number in range(20)]
    await transacted.store.flush()
    for half in halves:
        assert transacted.refusal(half, COMMIT) is None
    transacted.persist()

    again = Transacted(clock, storage.cut_power(rng), flush_disk_type="SYNC_FLUSH")
    await again.start()
    for check in await again.round():
        assert again.refusal(check, COMMIT) is None
    await again.store.flush()

    assert {b"%d" % number for number in range(20)} <= set(again.bodies())
    await again.stop()
    await transacted.stop()


async def test_a_thousand_transactions_survive_random_outcomes_losses_and_kills(
    clock: ManualClock, storage: FaultyStorage, rng: random.Random
) -> None:
    running = Transacted(clock, storage, log_file_size=1 << 20)
    await running.start()
    outcomes: dict[bytes, Outcome] = {}
    for number in range(1_000):
        body = b"%d" % number
        outcomes[body] = rng.choice((COMMIT, ROLLBACK))
        half = running.send(body)
        if rng.random() < 0.6:
            running.end(half, outcomes[body])
        if rng.random() < 0.1:
            running.end(half, outcomes[body])
        if number % 50 == 49:
            running.has_producer = rng.random() < 0.7
            for check in await running.round():
                if rng.random() < 0.8:
                    running.end(check, outcomes[check.message.body])
        if rng.random() < 0.01:
            running.persist()
        if rng.random() < 0.01:
            running = Transacted(clock, running.storage.crash(), log_file_size=1 << 20)
            await running.start()
    running.has_producer = True
    while asked_now := await running.round():
        for check in asked_now:
            running.end(check, outcomes[check.message.body])

    committed = [body for body, outcome in outcomes.items() if outcome is COMMIT]
    assert sorted(running.bodies()) == sorted(committed)
    assert running.bodies("TRANS_CHECK_MAX_TIME_TOPIC") == []
    await running.stop()


async def without_op_message(
    transacted: Transacted, half: PutMessageResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commit like a process that is killed before it writes the op message."""
    with monkeypatch.context() as patch:
        refuse_op_messages(transacted, patch)
        transacted.end(half, COMMIT)


@pytest.mark.parametrize(
    ("uniq_key", "before", "behind"),
    [("U", 0, 0), ("", 0, 0), ("U", 70, 0), ("", 70, 0), ("U", 0, 70)],
)
async def test_a_committed_message_is_found_by_its_key_or_at_its_queues_end(
    transacted: Transacted,
    clock: ManualClock,
    storage: FaultyStorage,
    monkeypatch: pytest.MonkeyPatch,
    uniq_key: str,
    before: int,
    behind: int,
) -> None:
    for _ in range(before):
        put(transacted.store, "T")
    half = transacted.send(b"once", UNIQ_KEY=uniq_key)
    await without_op_message(transacted, half, monkeypatch)
    for _ in range(behind):
        put(transacted.store, "T")

    again = Transacted(clock, storage.crash())
    await again.start()

    assert not again.transactions.pending
    assert again.refusal(half, ROLLBACK) == "the transaction was committed"
    assert again.bodies().count(b"once") == 1
    await again.stop()


async def test_with_sync_flush_the_op_message_follows_the_flush(
    clock: ManualClock, storage: FaultyStorage
) -> None:
    transacted = Transacted(clock, storage, flush_disk_type="SYNC_FLUSH")
    await transacted.start()
    half = transacted.send()
    await transacted.store.flush()
    put_result = transacted.end(half, COMMIT)
    transacted.transactions.settle()
    assert transacted.arrived(RMQ_SYS_TRANS_OP_HALF_TOPIC) == []
    assert half.queue_offset in transacted.transactions.pending

    await transacted.store.flush()
    transacted.transactions.settle()
    await transacted.store.flush()

    (message,) = transacted.arrived()
    assert put_result is not None
    assert put_result.commit_log_offset == message.commit_log_offset
    assert len(transacted.arrived(RMQ_SYS_TRANS_OP_HALF_TOPIC)) == 1
    assert not transacted.transactions.pending
    await transacted.stop()


async def test_the_last_progress_covers_messages_that_waited_for_a_flush(
    clock: ManualClock, storage: FaultyStorage
) -> None:
    transacted = Transacted(clock, storage, flush_disk_type="SYNC_FLUSH")
    await transacted.start()
    half = transacted.send()
    await transacted.store.flush()
    transacted.end(half, COMMIT)

    await transacted.transactions.settle_all()

    assert not transacted.transactions.pending
    assert transacted.offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 1
    await transacted.stop()


async def test_progress_is_reported_once_there_are_transactions(transacted: Transacted) -> None:
    place = ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0)
    transacted.persist()
    assert transacted.offsets.query(*place) == -1

    transacted.send()
    await transacted.store.flush()
    transacted.persist()

    assert transacted.offsets.query(*place) == 0


async def test_an_original_committed_by_another_broker_decides_its_copies(
    transacted: Transacted,
) -> None:
    """RocketMQ leaves the copies of a half message as they are."""
    half = transacted.send()
    (copy,) = await transacted.round()
    (original, _) = transacted.half_queue()
    transacted.store.put_copy(original, "T", 0, original.properties, sys_flag=COMMITTED_FLAG)

    assert transacted.refusal(copy, ROLLBACK) == "the transaction was committed"
    assert transacted.refusal(half, COMMIT) is None
    assert transacted.bodies() == [b"half"]


async def test_a_checked_transactions_op_message_has_its_key(transacted: Transacted) -> None:
    transacted.send(UNIQ_KEY="U")
    (copy,) = await transacted.round()

    transacted.end(copy, COMMIT)

    (superseded, decided) = transacted.arrived(RMQ_SYS_TRANS_OP_HALF_TOPIC)
    assert (superseded.body, superseded.keys, superseded.flag) == (b"0", None, 0)
    assert (decided.body, decided.keys, decided.flag) == (b"1", "U", 0)


async def test_outcomes_are_reported_when_they_are_stored(transacted: Transacted) -> None:
    reports: list[object] = []
    transactions = Transactions(
        transacted.store,
        transacted.offsets,
        transacted.topics.add,
        HOST,
        SteadyClock(transacted.clock),
        lambda message, topic, queue_id, _: reports.append((message.body, topic, queue_id)),
        lambda message: reports.append(message.body),
    )
    kept, dropped = transacted.send(b"kept", "T", 2), transacted.send(b"dropped")
    transactions.load()

    with transacted.refused_copies():
        transactions.end(GROUP, kept.queue_offset, kept.commit_log_offset, COMMIT)
    assert reports == []
    transactions.end(GROUP, kept.queue_offset, kept.commit_log_offset, COMMIT)
    transactions.end(GROUP, dropped.queue_offset, dropped.commit_log_offset, ROLLBACK)

    assert reports == [(b"kept", "T", 2), b"dropped"]


async def test_a_transactions_outcome_is_known(
    transacted: Transacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves = [transacted.send(UNIQ_KEY=f"U{number}") for number in range(4)]
    transacted.end(halves[0], COMMIT)
    transacted.end(halves[1], ROLLBACK)
    await without_op_message(transacted, halves[2], monkeypatch)
    fates = [transacted.transactions.outcome_of(message) for message in transacted.half_queue()]
    assert fates == ["committed", "rolled_back", "committed", "undecided"]
    await transacted.round()
    (*_, original, copy) = transacted.half_queue()
    assert transacted.transactions.outcome_of(original) == "undecided"
    assert transacted.transactions.outcome_of(copy) == "undecided"

    for _ in range(CHECK_MAX + 1):
        await transacted.round()

    (*_, last) = transacted.half_queue()
    assert transacted.transactions.outcome_of(last) == "given_up"
    last.queue_offset += 1
    assert transacted.transactions.outcome_of(last) == "unknown"


async def test_half_messages_are_found_by_key_client_id_and_offset(
    transacted: Transacted,
) -> None:
    half = transacted.send(b"one", KEYS="a b", UNIQ_KEY="U")
    transacted.end(transacted.send(b"two", KEYS="a"), COMMIT)
    transactions = transacted.transactions

    assert [found.body for found in transactions.with_key("a")] == [b"one", b"two"]
    assert [found.body for found in transactions.with_key("U")] == [b"one"]
    assert transactions.with_key("c") == []
    first, second = (transactions.at(half.queue_offset + number) for number in range(2))
    assert first is not None
    assert second is not None
    assert (first.body, second.body) == (b"one", b"two")
    assert transactions.at(half.queue_offset + 2) is None


async def test_a_half_message_of_the_native_turn_equals_ours(transacted: Transacted) -> None:
    table = {"TRAN_MSG": "true", "PGROUP": GROUP}
    place = withhold(table, "T", 3)
    stored = put(transacted.store, *place, body=b"native", more=table)
    (message,) = transacted.half_queue()
    born, checked = message.born_timestamp, crc32(b"native")
    half = PlainHalf(
        stored.queue_offset, stored.commit_log_offset, GROUP, "", "T", 3, born, checked, 6, "60"
    )

    transacted.transactions.add_plain(half, HOST)

    (pending,) = transacted.transactions.pending.values()
    assert pending.key == key_of_message(message)
    assert (pending.uniq_key, pending.immunity_ms) == ("", 60_000)
    assert transacted.refusal(stored, COMMIT) is None
    assert transacted.bodies("T", 3) == [b"native"]


async def test_a_message_without_a_client_id_leaves_no_key_behind(transacted: Transacted) -> None:
    table = {"TRAN_MSG": "true", "PGROUP": GROUP}
    place = withhold(table, "T", 0)
    stored = put(transacted.store, *place, body=b"plain", more=table)
    (message,) = transacted.half_queue()
    transacted.transactions.add(stored, table, b"plain", message.born_timestamp, HOST)
    (copy,) = await transacted.round()

    assert transacted.refusal(copy, COMMIT) is None

    ops = transacted.arrived(RMQ_SYS_TRANS_OP_HALF_TOPIC)
    assert [op.keys for op in ops] == [None, None]
    assert transacted.bodies() == [b"plain"]


async def test_a_half_message_registers_its_topic(transacted: Transacted) -> None:
    assert "RMQ_SYS_TRANS_HALF_TOPIC" not in transacted.topics

    transacted.send()

    assert "RMQ_SYS_TRANS_HALF_TOPIC" in transacted.topics


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_an_unauthorized_end_decides_nothing(
    transacted: Transacted, outcome: Outcome
) -> None:
    half = transacted.send(b"half")
    requests: list[bytes | memoryview] = []

    def refuse(message: MessageExt) -> None:
        requests.append(message.body)
        raise RequestRefusedError(ResponseCode.NO_PERMISSION, "not yours")

    with pytest.raises(RequestRefusedError, match="not yours"):
        transacted.transactions.end(
            GROUP, half.queue_offset, half.commit_log_offset, outcome, refuse
        )

    assert requests == [b"half"]
    assert list(transacted.transactions.pending) == [half.queue_offset]
    assert transacted.refusal(half, ROLLBACK if outcome is COMMIT else COMMIT) is None
