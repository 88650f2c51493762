"""A copied store: the broker's data, to the last complete record, and its queues' next offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.formats import record
from broker_core.verify.verifier import verify
from deploy.archive import manifest, target as backup_target
from deploy.archive.copier import Copier
from deploy.archive.manifest import BackupError
from deploy.archive.progress import Progress
from deploy.archive.store_copy import StorePlace, copy_store
from tests.support import backups
from tests.support.backups import COUNT, TOPIC, make, messages, run, running_store
from tests.support.builders import put

if TYPE_CHECKING:
    from pathlib import Path

OLD = "TopicOld"
BODY = b"." * 3000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    make(directory)
    return directory


def copied(data: Path, tmp_path: Path) -> Path:
    """Back up a data directory, restore it; return the new one."""
    target, restored = tmp_path / "backup", tmp_path / "restored"
    done = run("backup", target, "--data", data)
    assert done.returncode == 0, done.stderr
    done = run("restore", target, "--data", restored)
    assert done.returncode == 0, done.stderr
    return restored


class HalfPacked:
    """The log's last record, of which only the fixed part has been written."""

    def __init__(self, data: Path) -> None:
        self._file = last_file(data)
        self._whole = self._file.read_bytes()
        start = self._whole.rindex(record.MESSAGE_MAGIC_BYTES) - record.MAGIC_POSITION
        head = self._whole[: start + record.FIXED_V4_SIZE]
        self._file.write_bytes(head.ljust(len(self._whole), b"\0"))

    def finish(self) -> None:
        """Pack the rest, as the broker does when it gets the processor again."""
        self._file.write_bytes(self._whole)


def to_offset(tmp_path: Path) -> int:
    text = (tmp_path / "backup" / manifest.NAME).read_bytes()
    return manifest.decode(text).brokers[0].to_offset


def last_file(data: Path) -> Path:
    """Return the newest file of the log that has records."""
    files = (data / "store" / "commitlog").iterdir()
    return max(file for file in files if any(file.read_bytes()))


def test_a_running_broker_is_backed_up_to_its_last_record(data: Path, tmp_path: Path) -> None:
    with running_store(data) as store:
        for number in range(COUNT, 2 * COUNT):
            put(store, TOPIC, number % 2, b"%d" % number)
        end = store.max_commit_log_offset
        restored = copied(data, tmp_path)
        put(store, TOPIC, 0, b"behind it")

    assert to_offset(tmp_path) == end
    for queue_id in (0, 1):
        with running_store(restored) as store:
            assert store.max_commit_log_offset == end
            found = messages(store, queue_id)
        assert [one.body for one in found] == [b"%d" % n for n in range(queue_id, 2 * COUNT, 2)]
        assert [one.queue_offset for one in found] == list(range(COUNT))


def test_a_log_of_many_files_is_copied_whole(data: Path, tmp_path: Path) -> None:
    with running_store(data) as store:
        for _ in range(60):
            put(store, TOPIC, 2, BODY)
        restored = copied(data, tmp_path)

    with running_store(restored) as store:
        found = messages(store, 2)
    assert [one.queue_offset for one in found] == list(range(60))
    assert verify(restored / "store").problems == []


def test_a_queue_whose_messages_all_expired_continues_at_its_offset(
    data: Path, tmp_path: Path
) -> None:
    with running_store(data) as store:
        for _ in range(5):
            put(store, OLD)
        for _ in range(60):
            put(store, TOPIC, 2, BODY)
        store.files.log.delete_first()
        restored = copied(data, tmp_path)

    with running_store(restored) as store:
        assert store.max_offset_in_queue(OLD, 0) == 5
        assert put(store, OLD).queue_offset == 5


def test_a_deleted_topic_does_not_come_back(data: Path, tmp_path: Path) -> None:
    with running_store(data) as store:
        store.delete_topic(TOPIC)
        put(store, TOPIC, 0, b"of another life")
        restored = copied(data, tmp_path)

    assert backups.bodies(restored, 0) == [b"of another life"]
    assert backups.bodies(restored, 1) == []


def test_an_index_is_rebuilt(data: Path, tmp_path: Path) -> None:
    restored = copied(data, tmp_path)

    assert not (tmp_path / "backup" / "store" / "index").exists()
    with running_store(restored) as store:
        assert len(store.query_message(TOPIC, "key7", 32, 0, 1 << 60)) == 1


def test_half_a_record_after_the_last_one_is_truncated_by_the_first_start(
    data: Path, tmp_path: Path
) -> None:
    file = last_file(data)
    content = bytearray(file.read_bytes())
    end = len(bytes(content).rstrip(b"\0"))
    # A record with only its head written.
    content[end + 1 : end + 9] = record.BLANK.pack(200, record.MESSAGE_MAGIC)
    file.write_bytes(content)

    restored = copied(data, tmp_path)

    for queue_id in (0, 1):
        assert len(backups.bodies(restored, queue_id)) == COUNT // 2


@pytest.mark.parametrize("which", [b"k7", b"k%d" % (COUNT - 1)], ids=["inside", "last"])
def test_damage_is_copied_as_damage_and_no_offset_is_given_away(
    tmp_path: Path, which: bytes
) -> None:
    data = tmp_path / "data"
    make(data)
    with running_store(data) as store:
        for number in range(COUNT):
            put(store, TOPIC, 2, b"k%d" % number)
    file = last_file(data)
    content = bytearray(file.read_bytes())
    at = content.rindex(which)
    content[at] ^= 1
    file.write_bytes(content)

    restored = copied(data, tmp_path)

    with running_store(restored) as store:
        found = messages(store, 2)
        assert put(store, TOPIC, 2).queue_offset == COUNT
    assert len(found) == COUNT - 1
    assert which not in [one.body for one in found]


def test_a_record_that_is_being_packed_is_waited_for(data: Path, tmp_path: Path) -> None:
    with running_store(data) as store:
        end = store.max_commit_log_offset
    packed = HalfPacked(data)
    target = backup_target.opened(tmp_path / "backup")
    copier = Copier(target, Progress(0))

    place = StorePlace.of("broker", data / "store", "", "store")
    done = copy_store(copier, place, lambda seconds: packed.finish())

    assert done.to_offset == end
    log = {entry.path: entry.stored for entry in copier.entries if "commitlog" in entry.path}
    assert sum(log.values()) <= end


def test_a_log_that_resumes_after_a_pause_is_not_copied_with_holes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = HalfPacked(data)
    target = backup_target.opened(tmp_path / "backup")
    copier = Copier(target, Progress(0))
    text = copier.text

    def goes_on(path: str, content: bytes, modified_ns: int) -> None:
        packed.finish()
        text(path, content, modified_ns)

    # Called between the search and the log.
    monkeypatch.setattr(copier, "text", goes_on)
    place = StorePlace.of("broker", data / "store", "", "store")

    with pytest.raises(BackupError, match="grew past"):
        copy_store(copier, place, lambda seconds: None)
