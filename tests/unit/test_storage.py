"""The guarantees of every Storage, real or in memory."""

from __future__ import annotations

import errno
import subprocess
import sys
from mmap import PAGESIZE
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker_core.storage import FileStorage, OsFile
from tests.support.faulty_storage import FaultyStorage
from tests.support.page_cache import forget
from tests.support.waiting import until

if TYPE_CHECKING:
    from broker_core.storage import Storage

LOCKED = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        print("locked")
"""


@pytest.fixture(params=["real", "memory"])
def storage(request: pytest.FixtureRequest) -> Storage:
    return FileStorage() if request.param == "real" else FaultyStorage()


@pytest.fixture
def root(storage: Storage, tmp_path: Path) -> Path:
    storage.make_directory(tmp_path)
    return tmp_path


def test_a_missing_file_is_created_only_on_request(storage: Storage, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        storage.open(root / "a")
    storage.open(root / "a", create=True).close()

    assert storage.exists(root / "a")
    assert storage.list_directory(root) == ["a"]


def test_a_file_of_full_size_reads_as_zeros(storage: Storage, root: Path) -> None:
    file = storage.open(root / "a", create=True)
    file.set_size(8192)
    file.allocate(0, 4096)

    assert file.size == 8192
    assert file.pread(4000, 200) == bytes(200)
    assert file.pread(8190, 10) == bytes(2)
    file.close()


def test_data_written_through_a_mapping_is_read(storage: Storage, root: Path) -> None:
    file = storage.open(root / "a", create=True)
    file.set_size(8192)
    buffer = file.map()
    file.populate(buffer, 0, 8192)
    file.read_ahead(buffer, 4096, 4096)
    buffer[100:105] = b"hello"
    file.fdatasync()

    assert file.pread(100, 5) == b"hello"
    assert any(start <= 100 < end for start, end in file.data_ranges(0, 8192))
    file.close()
    assert bytes(buffer[100:105]) == b"hello"


def test_a_mapping_needs_no_descriptor_and_belongs_to_the_file(tmp_path: Path) -> None:
    storage = FileStorage()
    path = tmp_path / "a"
    file = storage.open(path, create=True)
    file.set_size(10_000)
    buffer = file.map()
    assert len(buffer) == 10_000
    assert sum(each.resolve() == path for each in Path("/proc/self/fd").iterdir()) == 1
    file.close()

    buffer[9_990:10_000] = b"last bytes"

    assert path.read_bytes()[-10:] == b"last bytes"
    assert not any(each.resolve() == path for each in Path("/proc/self/fd").iterdir())


def test_an_empty_file_cannot_be_mapped(tmp_path: Path) -> None:
    file = FileStorage().open(tmp_path / "a", create=True)
    with pytest.raises(ValueError, match="empty"):
        file.map()
    file.close()


def test_a_file_that_cannot_be_mapped_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(4096))
    with path.open("rb") as opened:
        file = OsFile(path, opened.fileno())
        with pytest.raises(PermissionError, match="a"):
            file.map()


def test_data_in_memory_is_read_without_a_wait_and_only_whole(tmp_path: Path) -> None:
    file = FileStorage().open(tmp_path / "a", create=True)
    file.set_size(8192)
    mapping = file.map()
    mapping[4000:4200] = b"x" * 200

    found = file.pread_resident(4000, 200)

    assert found is not None
    assert bytes(found) == b"x" * 200
    assert file.pread_resident(8190, 10) is None
    file.close()
    assert file.pread_resident(4000, 200) is None


def test_the_kernel_reports_how_much_of_a_mapping_is_in_memory(tmp_path: Path) -> None:
    file = FileStorage().open(tmp_path / "a", create=True)
    file.set_size(4 * PAGESIZE)
    mapping = file.map()
    file.set_fault_ahead(mapping, is_on=False)
    mapping[0] = mapping[PAGESIZE] = mapping[3 * PAGESIZE] = 1

    assert file.resident(mapping, 0, 4 * PAGESIZE) == 2 * PAGESIZE
    assert file.resident(mapping, 100, 200) == 200
    assert file.resident(mapping, PAGESIZE - 10, 20) == 20
    assert file.resident(mapping, PAGESIZE + 10, PAGESIZE) == PAGESIZE - 10
    assert file.resident(mapping, 2 * PAGESIZE + 10, 2 * PAGESIZE - 10) == 0
    assert file.resident(mapping, 4 * PAGESIZE - 5, 5) == 5
    file.close()


def test_data_needed_soon_is_read_into_memory_automatically(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 64 * PAGESIZE)
    forget(tmp_path)
    file = FileStorage().open(path)
    mapping = file.map()

    file.will_need(16 * PAGESIZE, 1 << 20)

    until(lambda: file.resident(mapping, 16 * PAGESIZE, 48 * PAGESIZE) == 48 * PAGESIZE, "it")
    file.close()
    file.will_need(0, PAGESIZE)


def test_flushing_a_closed_file_does_nothing(storage: Storage, root: Path) -> None:
    file = storage.open(root / "a", create=True)
    file.close()

    file.fdatasync()


def test_an_atomic_write_replaces_the_text_and_keeps_the_old_one(
    storage: Storage, root: Path
) -> None:
    path = root / "topics.json"
    for text in (b"one", b"two", b"three"):
        storage.write_atomically(path, text, keep_backup=True)

    assert storage.read(path) == b"three"
    assert storage.read(root / "topics.json.bak") == b"two"
    assert storage.list_directory(root) == ["topics.json", "topics.json.bak"]
    assert storage.read(root / "missing") is None


def test_removing_a_missing_entry_is_not_an_error(storage: Storage, root: Path) -> None:
    storage.unlink(root / "missing")
    storage.remove_directory(root / "missing")

    assert storage.list_directory(root / "missing") == []


def test_directories_are_created_with_their_parents(storage: Storage, root: Path) -> None:
    storage.make_directory(root / "a" / "b")
    storage.make_directory(root / "a" / "b")

    assert storage.is_directory(root / "a" / "b")
    assert not storage.is_directory(root / "a" / "c")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")

    with pytest.raises(OSError, match=rf"Errno {errno.ELOOP}"):
        FileStorage().open(tmp_path / "link", create=True)


def test_a_java_broker_respects_the_lock(tmp_path: Path) -> None:
    file = FileStorage().open(tmp_path / "lock", create=True)
    command = [sys.executable, "-c", LOCKED, str(tmp_path / "lock")]

    assert file.try_lock()
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"locked\n"
    file.close()
    assert subprocess.run(command, capture_output=True, check=True).stdout == b""


def test_a_hole_is_not_data(tmp_path: Path) -> None:
    file = FileStorage().open(tmp_path / "a", create=True)
    file.set_size(1 << 24)
    file.pwrite(1 << 20, b"x")

    ranges = file.data_ranges(0, 1 << 24)

    assert any(start <= 1 << 20 < end for start, end in ranges)
    assert sum(end - start for start, end in ranges) < 1 << 23
    file.close()


def test_a_power_cut_keeps_only_flushed_data() -> None:
    storage = FaultyStorage()
    root = next(iter(storage.directories))
    for name, flush in (("flushed", True), ("written", False)):
        file = storage.open(root / name, create=True)
        file.pwrite(0, b"old")
        if flush:
            file.fdatasync()
    storage.sync_directory(root)

    left = storage.cut_power()

    assert left.read(root / "flushed") == b"old"
    assert (left.read(root / "written") or b"").strip(b"\0") == b""


def test_anonymous_memory_is_zeros_that_can_be_locked_and_written(storage: Storage) -> None:
    buffer = storage.buffer(3 * 4096)
    storage.lock_memory(buffer)

    assert bytes(buffer) == bytes(3 * 4096)
    buffer[4096:4101] = b"hello"
    storage.unlock_memory(buffer)

    assert bytes(buffer[4096:4101]) == b"hello"


def test_data_written_from_a_buffer_is_visible_in_the_mapping(storage: Storage, root: Path) -> None:
    file = storage.open(root / "a", create=True)
    file.set_size(8192)
    mapping = file.map()
    buffer = storage.buffer(8192)
    buffer[5000:5005] = b"hello"

    file.pwrite(5000, memoryview(buffer)[5000:5005])

    assert bytes(mapping[5000:5005]) == b"hello"
    file.close()


def test_more_memory_than_can_be_locked_is_an_error(tmp_path: Path) -> None:
    # In a separate process, because limits can't be raised again, and don't apply to root.
    code = (
        "import os, resource, sys\n"
        "from broker_core.storage import FileStorage\n"
        "resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 4096))\n"
        "if os.getuid() == 0:\n"
        "    os.setuid(65534)\n"
        "storage = FileStorage()\n"
        "try:\n"
        "    storage.lock_memory(storage.buffer(1 << 20))\n"
        "except OSError as error:\n"
        "    print(error.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert int(done.stdout) in {errno.ENOMEM, errno.EPERM, errno.EAGAIN}
