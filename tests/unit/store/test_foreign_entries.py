"""Foreign files in a store's directories don't prevent its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.clock import SystemClock
from broker_core.errors import StoreError
from broker_core.formats.paths import offset_file_name
from broker_core.storage import FileStorage
from broker_core.store.message_store import MessageStore
from broker_core.verify.verifier import verify
from tests.support.builders import HOST, put, read_all, store_config
from tests.support.foreign_entries import leave_in

COUNT = 200
QUEUES = 2
DIRECTORIES = (
    "",
    "commitlog",
    "consumequeue",
    "consumequeue/TopicTest",
    "consumequeue/TopicTest/0",
    "consumequeue_ext/TopicTest",
    "consumequeue_ext/TopicTest/0",
    "index",
    "config",
)


def a_store(root: Path) -> MessageStore:
    config = store_config(store_path_root_dir=str(root), enable_consume_queue_ext=True)
    return MessageStore(config, SystemClock(), FileStorage(), HOST, lambda topic, text: b"bits")


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    store = a_store(tmp_path)
    store.load()
    await store.start()
    for n in range(COUNT):
        put(store, queue_id=n % QUEUES, body=b"%d" % n, keys=f"k{n}")
    await store.shutdown()
    (tmp_path / "config").mkdir(exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_store_starts_beside_them_and_reports_it(
    root: Path, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    left = {directory: leave_in(root / directory) for directory in DIRECTORIES}
    if not is_clean:
        (root / "abort").touch()
    store = a_store(root)

    store.load()
    await store.start()
    put(store, body=b"one more")
    found = len(read_all(store))
    await store.shutdown()

    assert found == COUNT // QUEUES + 1
    for directory in sorted(set(DIRECTORIES) - {"", "config", "consumequeue_ext/TopicTest"}):
        names = ",".join(sorted(path.name for path in left[directory]))
        assert (
            "unexpected entries in the store ignored "
            f"directory={root / directory} count={len(left[directory])} names={names}\n"
        ) in caplog.text
    assert all(path.exists() for paths in left.values() for path in paths)
    report = verify(root)
    assert report.problems == []
    assert {str(path) for path in left["commitlog"]} <= set(report.ignored)
    assert {str(path) for path in left["consumequeue"]} <= set(report.ignored)
    assert {str(path) for path in left["index"]} <= set(report.ignored)


async def test_a_deleted_topic_leaves_a_directory_that_others_use(root: Path) -> None:
    left = leave_in(root / "consumequeue" / "TopicTest" / "0")
    store = a_store(root)
    store.load()
    await store.start()

    store.delete_topic("TopicTest")
    await store.shutdown()

    assert sorted(left[0].parent.iterdir()) == sorted(left)
    assert not (root / "consumequeue" / "TopicTest" / "1").exists()
    again = a_store(root)
    again.load()
    assert read_all(again) == []
    again.close()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (f"commitlog/{offset_file_name(1 << 30)}.bak", "may be a renamed file of the store"),
        (f"commitlog/old-{offset_file_name(1 << 30)}", "may be a renamed file of the store"),
        (f"commitlog/.{offset_file_name(1 << 30)}.X7a9Qe", "may be a renamed file of the store"),
        ("commitlog/1073741824", "may be a renamed file of the store"),
        (f"commitlog/{offset_file_name(1 << 30)}/", "is a directory where a file of the store"),
        ("consumequeue/TopicTest/0/0", "may be a renamed file of the store"),
        ("consumequeue/TopicTest/7", "is a file where queue 7 has its directory"),
        ("index/20261127201500123/", "is a directory"),
    ],
)
async def test_a_possibly_damaged_store_file_is_rejected(
    root: Path, path: str, reason: str
) -> None:
    if path.endswith("/"):
        (root / path).mkdir()
    else:
        (root / path).write_bytes(b"half a file")

    with pytest.raises(StoreError, match=f"^{Path(root, path)} {reason}.* start again"):
        a_store(root).load()
    assert any(str(Path(root, path)) in problem for problem in verify(root).problems)
