"""Saving the end of a log aside before it's truncated."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from broker_core.errors import ReplicationError
from broker_core.ha.divergence import MANIFEST, MESSAGES, save_diverged
from broker_core.ha.epochs import Epoch
from tests.support.builders import LOG_FILE_SIZE, put
from tests.support.diverged_logs import diverged_stores, range_of, small_log
from tests.support.faulty_storage import FaultyStorage

DIVERGED = Path("/store/diverged")


async def test_saved_files_name_each_message() -> None:
    ours, theirs, end = await diverged_stores(150, 70, 1)
    storage = FaultyStorage()

    place = save_diverged(ours.files.log, end, range_of(ours), (), DIVERGED, storage)

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
    ours, theirs, end = await diverged_stores(10, 3, 0)
    (offset, size, _) = ours.units("TopicTest", 0, 5, 1)[0]
    ours.files.log.files[0].buffer[offset + 4] ^= 1
    storage = FaultyStorage()

    place = save_diverged(ours.files.log, end, range_of(ours), (), DIVERGED, storage)

    lines = [json.loads(line) for line in (storage.read(place / MESSAGES) or b"").splitlines()]
    assert lines[0]["unreadable"].startswith("illegal magic code")
    assert (lines[0]["commitLogOffset"], lines[0]["size"]) == (offset, size)
    assert [one["keys"] for one in lines[1:]] == ["own-1", "own-2"]
    await ours.shutdown()
    await theirs.shutdown()


async def test_nothing_is_saved_without_space() -> None:
    ours, theirs, end = await diverged_stores(10, 3, 0)
    storage = FaultyStorage(free_bytes=1000)

    with pytest.raises(ReplicationError, match=r"only 1000 bytes are free there; free up space"):
        save_diverged(ours.files.log, end, range_of(ours), (), DIVERGED, storage)

    assert storage.list_directory(DIVERGED) == []
    await ours.shutdown()
    await theirs.shutdown()


async def test_saved_files_have_the_documented_names_and_layout() -> None:
    ours, theirs, end = await diverged_stores(60, 20, 0)
    storage = FaultyStorage()
    others = (Epoch(epoch=2, start_offset=77),)

    place = save_diverged(ours.files.log, end, range_of(ours, (1, 5)), others, DIVERGED, storage)

    to = ours.max_commit_log_offset
    raw = b"".join(
        bytes(view)
        for view in (
            ours.files.log.committed_view(end),
            ours.files.log.committed_view(LOG_FILE_SIZE),
        )
        if view is not None
    )
    digest = hashlib.sha256(raw).hexdigest()
    assert place == DIVERGED / f"{end:020}-{to:020}-{digest[:8]}"
    text = (storage.read(place / "manifest.json") or b"").decode()
    assert text.startswith('{\n  "from": ')
    assert text.endswith("}\n")
    parts = {end: raw[: LOG_FILE_SIZE - end], LOG_FILE_SIZE: raw[LOG_FILE_SIZE - end :]}
    assert json.loads(text) == {
        "from": end,
        "to": to,
        "sha256": digest,
        "messages": 20,
        "files": [
            {
                "name": f"commitlog/{offset:020}",
                "size": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
            for offset, data in parts.items()
        ],
        "epochs": [{"epoch": 1, "startOffset": 5}],
        "mastersEpochs": [{"epoch": 2, "startOffset": 77}],
    }
    assert len((storage.read(place / "messages.jsonl") or b"").splitlines()) == 20
    await ours.shutdown()
    await theirs.shutdown()


async def test_a_save_interrupted_by_a_kill_is_rewritten_and_a_whole_one_left_alone() -> None:
    ours, theirs, end = await diverged_stores(10, 3, 0)
    storage = FaultyStorage()
    place = save_diverged(ours.files.log, end, range_of(ours), (), DIVERGED, storage)
    saved = {path: storage.read(path) for path in storage.files}
    for path in saved:
        if path.name == "manifest.json":
            storage.unlink(path)
        else:
            file = storage.open(path)
            file.pwrite(0, b"?" * 100_000)
            file.close()

    assert save_diverged(ours.files.log, end, range_of(ours), (), DIVERGED, storage) == place
    assert {path: storage.read(path) for path in storage.files} == saved

    storage.calls.clear()
    assert save_diverged(ours.files.log, end, range_of(ours), (), DIVERGED, storage) == place
    assert storage.calls["open"] == storage.calls["pwrite"] == 0
    await ours.shutdown()
    await theirs.shutdown()


@pytest.mark.parametrize("lacking", [0, 1])
async def test_sixteen_mebibytes_stay_free_beside_the_saved_data(lacking: int) -> None:
    ours, theirs, end = await diverged_stores(10, 3, 0)
    needed = ours.max_commit_log_offset - end + (16 << 20)
    storage = FaultyStorage(free_bytes=needed - lacking)

    if lacking:
        with pytest.raises(ReplicationError, match=f"only {needed - 1} bytes are free"):
            save_diverged(ours.files.log, end, range_of(ours), (), DIVERGED, storage)
    else:
        save_diverged(ours.files.log, end, range_of(ours), (), DIVERGED, storage)
    await ours.shutdown()
    await theirs.shutdown()


async def test_keys_are_saved_unchanged() -> None:
    store = await small_log()
    put(store, keys="ключ")
    storage = FaultyStorage()

    place = save_diverged(store.files.log, 0, range_of(store), (), DIVERGED, storage)

    assert "ключ".encode() in (storage.read(place / "messages.jsonl") or b"")
    await store.shutdown()
