"""Where two logs part, what is saved, and what is cut."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.errors import ReplicationError
from broker_core.ha.divergence import (
    MANIFEST,
    MESSAGES,
    Place,
    find_shared_end,
    fingerprint,
    messages_of,
    save_aside,
)
from broker_core.ha.epochs import Epoch, LogRange
from tests.support.builders import LOG_FILE_SIZE, a_store, get, put, read_all, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.store.commit_log import CommitLog
    from broker_core.store.message_store import MessageStore

DIVERGED = Path("/store/diverged")


class KilledError(Exception):
    """The process ends here."""


async def filled(
    storage: FaultyStorage, count: int, what: str = "shared", size: int = 900, **changes: Any
) -> MessageStore:
    """Return a running store of the directory with so many more messages."""
    store = a_store(ManualClock(), storage, store_config(**changes))
    store.load()
    await store.start()
    for number in range(count):
        put(
            store,
            queue_id=number % 2,
            body=f"{what}-{number}".encode().ljust(size, b"."),
            keys=f"{what}-{number}",
            uniq_key=f"id-{what}-{number}",
            tags="T",
        )
    return store


async def left_by(store: MessageStore, storage: FaultyStorage) -> FaultyStorage:
    """Return what a kill leaves of a running store, which is ended."""
    left = storage.crash()
    await store.shutdown()
    return left


def range_of(store: MessageStore, *epochs: tuple[int, int]) -> LogRange:
    return LogRange(
        tuple(Epoch(epoch=epoch, start_offset=start) for epoch, start in epochs),
        store.min_commit_log_offset,
        store.max_commit_log_offset,
    )


class Asked:
    """Answers for another log, and counts."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self.questions = 0
        self.places = 0

    async def __call__(self, places: Sequence[Place]) -> list[str | None]:
        self.questions += 1
        self.places += len(places)
        return [fingerprint(self._log, place) for place in places]


def bodies(store: MessageStore) -> list[bytes]:
    return [one.body for queue_id in (0, 1) for one in read_all(store, "TopicTest", queue_id)]


async def parted(shared: int, own: int, other: int) -> tuple[MessageStore, MessageStore, int]:
    """Return two stores that part behind so many messages, and where."""
    storage = FaultyStorage()
    store = await filled(storage, shared)
    end = store.max_commit_log_offset
    left = await left_by(store, storage)
    return (
        await filled(left.crash(), own, "own"),
        await filled(left.crash(), other, "other"),
        end,
    )


@pytest.mark.parametrize("shared", [1, 10, 63, 64, 65, 200, 400])
@pytest.mark.parametrize("own", [1, 7, 150])
async def test_the_end_of_what_two_logs_share_is_found(shared: int, own: int) -> None:
    ours, theirs, end = await parted(shared, own, other=170)
    ask = Asked(theirs.files.log)
    limit = min(ours.max_commit_log_offset, theirs.max_commit_log_offset)

    found = await find_shared_end(ours.files.log, limit, range_of(theirs), ask)

    assert found == end
    assert ask.questions < 20
    await ours.shutdown()
    await theirs.shutdown()


async def test_for_equal_logs_one_question_is_enough() -> None:
    ours, theirs, end = await parted(200, 0, 50)
    ask = Asked(theirs.files.log)
    unit = ours.units("TopicTest", 1, 99, 1)[0]

    found = await find_shared_end(
        ours.files.log, end, range_of(theirs), ask, last=Place(unit[0], unit[1])
    )

    assert (found, ask.questions, ask.places) == (end, 1, 1)
    await ours.shutdown()
    await theirs.shutdown()


async def test_a_log_of_another_set_is_refused() -> None:
    ours = await filled(FaultyStorage(), 30, "ours")
    theirs = await filled(FaultyStorage(), 30, "theirs")

    with pytest.raises(ReplicationError, match="of different sets, or the master lost its log"):
        await find_shared_end(
            ours.files.log,
            ours.max_commit_log_offset,
            range_of(theirs),
            Asked(theirs.files.log),
        )
    await ours.shutdown()
    await theirs.shutdown()


async def test_a_master_whose_log_begins_behind_the_own_end_is_refused() -> None:
    ours, theirs, end = await parted(10, 0, 0)
    expired = range_of(theirs)._replace(min_offset=end + 1, max_offset=end + 1000)

    with pytest.raises(ReplicationError, match="messages between are gone"):
        await find_shared_end(ours.files.log, end, expired, Asked(theirs.files.log))
    await ours.shutdown()
    await theirs.shutdown()


async def test_a_peer_that_answers_too_little_is_refused() -> None:
    ours, theirs, end = await parted(10, 0, 0)

    async def silent(_: Sequence[Place]) -> list[str | None]:
        return []

    with pytest.raises(ReplicationError, match="0 of 1 questions"):
        await find_shared_end(ours.files.log, end, range_of(theirs), silent)
    await ours.shutdown()
    await theirs.shutdown()


async def test_what_is_saved_names_each_message() -> None:
    ours, theirs, end = await parted(150, 70, 1)
    storage = FaultyStorage()

    place = save_aside(ours.files.log, end, range_of(ours), (), DIVERGED, storage)

    storage = storage.cut_power()
    manifest = json.loads(storage.read(place / MANIFEST) or b"")
    assert (manifest["from"], manifest["to"]) == (end, ours.max_commit_log_offset)
    raw = b"".join(storage.read(place / file["name"]) or b"" for file in manifest["files"])
    assert hashlib.sha256(raw).hexdigest() == manifest["sha256"]
    assert len(manifest["files"]) == 2
    lines = [json.loads(line) for line in (storage.read(place / MESSAGES) or b"").splitlines()]
    assert manifest["messages"] == len(lines) == 70
    assert [line["keys"] for line in lines] == [f"own-{number}" for number in range(70)]
    expected = {
        ("TopicTest", number % 2, 75 + number // 2, f"id-own-{number}") for number in range(70)
    }
    found = {(one["topic"], one["queueId"], one["queueOffset"], one["uniqKey"]) for one in lines}
    assert found == expected
    await ours.shutdown()
    await theirs.shutdown()


async def test_unreadable_bytes_are_saved_and_named() -> None:
    ours, theirs, end = await parted(10, 3, 0)
    (offset, size, _) = ours.units("TopicTest", 0, 5, 1)[0]
    ours.files.log.files[0].buffer[offset + 4] ^= 1
    storage = FaultyStorage()

    place = save_aside(ours.files.log, end, range_of(ours), (), DIVERGED, storage)

    lines = [json.loads(line) for line in (storage.read(place / MESSAGES) or b"").splitlines()]
    assert lines[0]["unreadable"].startswith("illegal magic code")
    assert (lines[0]["commitLogOffset"], lines[0]["size"]) == (offset, size)
    assert [one["keys"] for one in lines[1:]] == ["own-1", "own-2"]
    await ours.shutdown()
    await theirs.shutdown()


async def test_nothing_is_saved_without_room() -> None:
    ours, theirs, end = await parted(10, 3, 0)
    storage = FaultyStorage(free_bytes=1000)

    with pytest.raises(ReplicationError, match=r"only 1000 bytes are free there: make room"):
        save_aside(ours.files.log, end, range_of(ours), (), DIVERGED, storage)

    assert storage.list_directory(DIVERGED) == []
    await ours.shutdown()
    await theirs.shutdown()


@pytest.mark.parametrize(("shared", "own"), [(10, 5), (60, 200), (130, 1), (3, 300)])
async def test_a_cut_leaves_the_store_that_never_had_the_rest(shared: int, own: int) -> None:
    storage = FaultyStorage()
    store = await filled(storage, shared)
    end, before = store.max_commit_log_offset, bodies(store)
    left = await left_by(store, storage)
    longer = await filled(left, own, "own")
    await longer.shutdown()  # a clean exit: nothing else would make recovery look

    store = a_store(ManualClock(), left, store_config())
    report = store.load(cut_at=end)

    assert store.max_commit_log_offset == end
    assert report.damaged == []
    assert bodies(store) == before
    assert len(store.query_message("TopicTest", "shared-1", 32, 0, 1 << 60)) == 1
    assert store.query_message("TopicTest", "own-0", 32, 0, 1 << 60) == []
    await store.start()
    again = put(store, body=b"new", keys="new")
    assert again.commit_log_offset == end
    assert get(store, again.queue_offset).buffers
    await store.shutdown()


async def test_a_cut_that_a_power_cut_ends_at_any_call_is_done_by_the_next_start() -> None:
    storage = FaultyStorage()
    store = await filled(storage, 60)
    end, before = store.max_commit_log_offset, bodies(store)
    left = await left_by(store, storage)
    image = await left_by(await filled(left, 250, "own"), left)
    calls = 0
    while True:
        calls += 1
        disk = image.crash()
        left_calls = calls

        def count(_: str) -> None:
            nonlocal left_calls
            left_calls -= 1
            if left_calls == 0:
                raise KilledError

        disk.on_call = count
        store = a_store(ManualClock(), disk, store_config())
        try:
            store.load(cut_at=end)
        except KilledError:
            pass
        else:
            break
        for after in (disk.crash(), disk.cut_power()):
            after.on_call = None
            again = a_store(ManualClock(), after, store_config())
            report = again.load(cut_at=end)
            assert (again.max_commit_log_offset, report.damaged) == (end, [])
            assert bodies(again) == before
            again.close()
    assert calls > 10
    assert end > LOG_FILE_SIZE // 2


async def test_a_record_is_told_right_behind_a_single_byte_that_is_none() -> None:
    store = await filled(FaultyStorage(), 3)
    log = store.files.log
    begin = put(store).commit_log_offset

    told = list(messages_of(log, begin - 1, log.max_offset))

    assert [(one["commitLogOffset"], one["size"]) for one in told] == [
        (begin - 1, 1),
        (begin, log.max_offset - begin),
    ]
    assert ["unreadable" in one for one in told] == [True, False]
    await store.shutdown()
