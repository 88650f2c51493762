"""deploy/backup and deploy/restore: copies, rejections, and kills."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from deploy.archive import manifest as backup_manifest
from deploy.archive.progress import Progress
from deploy.machine import data_directory
from tests.support import backups
from tests.support.backups import COUNT, make, run, run_dying, tree
from tests.support.foreign_entries import leave_in

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("backup", "backup.tar", "backup.tar.zst")
KEPT = {
    "broker.conf",
    "console.secret_key",
    "console.sqlite3",
    "reports/1/table.json",
    "store/abort",
    "store/config/consumerOffset.json",
    "store/config/topics.json",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    make(directory)
    return directory


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path: (directory / path).read_bytes() for path in tree(directory)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_backup_is_restored_elsewhere(data: Path, tmp_path: Path, kind: str) -> None:
    target, restored = tmp_path / kind, tmp_path / "restored"

    copied = run("backup", target, "--data", data)
    assert copied.returncode == 0, copied.stderr
    verified = run("backup", "--verify", target)
    assert verified.returncode == 0, verified.stderr
    made = run("restore", target, "--data", restored)

    assert made.returncode == 0, made.stderr
    assert f"deploy/up --data {restored}\n" in made.stdout
    assert tree(restored) >= KEPT
    assert not any(path.startswith("logs/") for path in tree(restored))
    assert f"storePathRootDir={restored / 'store'}" in (restored / "broker.conf").read_text()
    with closing(sqlite3.connect(restored / "console.sqlite3")) as database:
        assert database.execute("SELECT name FROM account").fetchall() == [("ada",)]
    for queue_id in (0, 1):
        expected = [b"%d" % number for number in range(queue_id, COUNT, 2)]
        assert backups.bodies(restored, queue_id) == expected


def test_a_store_missing_in_the_configuration_is_backed_up_as_a_store(
    data: Path, tmp_path: Path
) -> None:
    target, restored, given = tmp_path / "backup", tmp_path / "restored", tmp_path / "my.conf"
    given.write_text("brokerName=broker-a\n")
    (data / "broker.conf").unlink()

    copied = run("backup", target, "--data", data, "-c", given)
    assert copied.returncode == 0, copied.stderr
    made = run("restore", target, "--data", restored)

    assert made.returncode == 0, made.stderr
    manifest = backup_manifest.decode((target / backup_manifest.NAME).read_bytes())
    assert [one.to_offset > 0 for one in manifest.brokers] == [True]
    assert "store/abort" in tree(restored)
    assert f"storePathRootDir={restored / 'store'}" in (restored / "broker.conf").read_text()
    assert backups.bodies(restored, 0) == [b"%d" % number for number in range(0, COUNT, 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_backup_is_private_and_restores_file_modes_and_times(
    data: Path, tmp_path: Path, kind: str
) -> None:
    target, restored = tmp_path / kind, tmp_path / "restored"
    (data / "broker.conf").chmod(0o644)
    log = min((data / "store" / "commitlog").iterdir())
    os.utime(log, ns=(5, 1_700_000_000_000_000_001))

    assert run("backup", target, "--data", data).returncode == 0
    for path in (target, *target.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert run("restore", target, "--data", restored).returncode == 0

    assert stat.S_IMODE((restored / "broker.conf").stat().st_mode) == 0o644
    assert stat.S_IMODE((restored / "console.secret_key").stat().st_mode) == 0o600
    assert stat.S_IMODE(restored.stat().st_mode) == 0o700
    again = restored / "store" / "commitlog" / log.name
    # The expiry of a log file depends on its modification time.
    assert again.stat().st_mtime_ns == 1_700_000_000_000_000_001
    assert again.stat().st_size == log.stat().st_size


def test_a_backup_leaves_the_appliance_unchanged(data: Path, tmp_path: Path) -> None:
    before = bytes_of(data)

    assert run("backup", tmp_path / "backup", "--data", data).returncode == 0

    after = bytes_of(data)
    # SQLite creates these when it's opened, and its next user removes them.
    assert after.keys() - before.keys() <= {"console.sqlite3-shm", "console.sqlite3-wal"}
    assert {path: after[path] for path in before} == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_found_and_nothing_is_restored(
    data: Path, tmp_path: Path, kind: str
) -> None:
    target, restored = tmp_path / kind, tmp_path / "restored"
    assert run("backup", target, "--data", data).returncode == 0
    file = target / "console.secret_key" if target.is_dir() else target
    content = bytearray(file.read_bytes())
    at = content.find(b"k" * 64) if kind != "backup.tar.zst" else len(content) // 2
    content[at] ^= 1
    file.write_bytes(content)

    verified = run("backup", "--verify", target)
    made = run("restore", target, "--data", restored)

    if kind == "backup.tar.zst":
        assert verified.returncode == 1
        assert "damaged" in verified.stderr
        assert "damaged" in made.stderr
    else:
        assert verified.returncode == 1
        assert verified.stderr == "modified: console.secret_key\n"
        assert "modified: console.secret_key" in made.stderr
    assert made.returncode == 2
    assert not restored.exists()


def test_missing_and_truncated_files_are_named(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    assert run("backup", target, "--data", data).returncode == 0
    (target / "console.secret_key").unlink()
    os.truncate(target / "reports" / "1" / "table.json", 1)
    (target / "store" / "config" / "topics.json").unlink()
    (target / "store" / "config" / "topics.json").symlink_to("/etc/hostname")

    verified = run("backup", "--verify", target)

    assert verified.returncode == 1
    assert sorted(verified.stderr.splitlines()) == [
        "missing: console.secret_key",
        "missing: store/config/topics.json",
        "truncated: reports/1/table.json lacks 1 bytes",
    ]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_truncated_tar_file_is_rejected(data: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / kind
    assert run("backup", target, "--data", data).returncode == 0
    whole = target.read_bytes()

    # After the manifest a tar file has only zeros.
    end = whole.rindex(b'{"sha256"') if kind == "backup.tar" else len(whole)
    for share in (0.01, 0.3, 0.6, 0.9):
        target.write_bytes(whole[: int(end * share)])
        done = run("restore", target, "--data", tmp_path / "restored")

        assert done.returncode == 2
        assert "truncated or damaged" in done.stderr or "has no manifest" in done.stderr
        assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reads", [0, 3, 5, 8])
def test_a_killed_backup_leaves_nothing_that_looks_complete(
    data: Path, tmp_path: Path, kind: str, reads: int
) -> None:
    target = tmp_path / kind
    partial = tmp_path / f"{kind}.partial"

    done = run_dying("backup", "Source.read", reads, target, "--data", data)

    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not target.exists()
    assert partial.exists()
    for source in (target, partial):
        made = run("restore", source, "--data", tmp_path / "restored")
        assert made.returncode == 2
    again = run("backup", target, "--data", data)
    assert again.returncode == 2
    assert f"{partial} belongs to an unfinished or running backup" in again.stderr


@pytest.mark.parametrize("writes", [0, 4, 8])
def test_no_appliance_starts_after_a_killed_restore(
    data: Path, tmp_path: Path, writes: int
) -> None:
    target, restored = tmp_path / "backup", tmp_path / "restored"
    assert run("backup", target, "--data", data).returncode == 0

    done = run_dying("restore", "Sink.write", writes, target, "--data", restored)

    assert done.returncode == -signal.SIGKILL, done.stderr
    with (
        pytest.raises(data_directory.NotStartedError, match="didn't finish"),
        data_directory.lock(restored),
    ):
        pass
    again = run("restore", target, "--data", restored)
    assert again.returncode == 2
    assert "didn't finish. Delete its contents" in again.stderr


def test_a_target_that_would_copy_itself_or_exists_is_rejected(data: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(data)
    (tmp_path / "there").mkdir()

    inside = run("backup", data / "backup", "--data", data)
    linked = run("backup", link / "reports" / "backup", "--data", data)
    there = run("backup", tmp_path / "there", "--data", data)
    nowhere = run("backup", tmp_path / "no" / "backup", "--data", data)

    assert [one.returncode for one in (inside, linked, there, nowhere)] == [2, 2, 2, 2]
    assert "is inside the data directory" in inside.stderr
    assert "is inside the data directory" in linked.stderr
    assert "exists. Choose a new path for the backup" in there.stderr
    assert f"The directory {tmp_path / 'no'} doesn't exist" in nowhere.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "link", "there"]


def test_a_directory_without_an_appliance_is_rejected(tmp_path: Path) -> None:
    nothing = run("backup", tmp_path / "backup", "--data", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    empty = run("backup", tmp_path / "backup", "--data", tmp_path / "empty")

    assert f"The data directory {tmp_path / 'nowhere'} doesn't exist" in nothing.stderr
    assert "broker.conf doesn't exist. Set it with -c" in empty.stderr
    assert nothing.returncode == empty.returncode == 2


def test_a_restore_needs_an_empty_directory(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    assert run("backup", target, "--data", data).returncode == 0
    (tmp_path / "empty").mkdir()

    made = run("restore", target, "--data", tmp_path / "empty")
    again = run("restore", target, "--data", tmp_path / "empty")
    nothing = run("restore", tmp_path / "nowhere", "--data", tmp_path / "restored")

    assert made.returncode == 0, made.stderr
    assert again.returncode == 2
    assert "isn't empty" in again.stderr
    assert nothing.returncode == 2
    assert f"The backup {tmp_path / 'nowhere'} doesn't exist" in nothing.stderr


def test_the_operating_systems_directory_entries_are_not_in_a_backup(
    data: Path, tmp_path: Path
) -> None:
    for directory in (".", "store", "store/commitlog", "store/consumequeue", "store/config"):
        leave_in(data / directory, has_notes=False)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    left = leave_in(mounted, has_notes=False)

    copied = run("backup", tmp_path / "backup", "--data", data)
    made = run("restore", tmp_path / "backup", "--data", mounted)

    assert copied.returncode == 0, copied.stderr
    assert made.returncode == 0, made.stderr
    assert tree(mounted) >= KEPT
    in_backup = [str(path) for path in (tmp_path / "backup").rglob("*")]
    assert not [path for path in in_backup if any(one.name in path for one in left)]
    assert backups.bodies(mounted, 0) == [b"%d" % number for number in range(0, COUNT, 2)]


def test_a_directory_in_use_by_an_appliance_is_not_overwritten(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    assert run("backup", target, "--data", data).returncode == 0

    with data_directory.lock(tmp_path / "used"):
        made = run("restore", target, "--data", tmp_path / "used")

    assert made.returncode == 2
    assert f"in use by a running appliance (process {os.getpid()})" in made.stderr


def test_a_key_that_names_an_external_file_names_its_copy_after_the_restore(
    data: Path, tmp_path: Path
) -> None:
    target, restored = tmp_path / "backup", tmp_path / "restored"
    outside = tmp_path / "etc"
    (outside / "acl").mkdir(parents=True)
    (outside / "acl" / "more.yml").write_text("accounts: []\n")
    (outside / "plain_acl.yml").write_text("accounts: []\n")
    (outside / "server.key").write_text("a key\n")
    (outside / "server.pem").write_text("a certificate\n")
    with (data / "broker.conf").open("a") as file:
        file.write(f"aclEnable=true\naclFile={outside / 'plain_acl.yml'}\n")
        file.write(f"tls.server.certPath={outside / 'server.pem'}\n")
        file.write(f"tls.server.keyPath={outside / 'server.key'}\n")

    copied = run("backup", target, "--data", data)
    assert copied.returncode == 0, copied.stderr
    assert run("restore", target, "--data", restored).returncode == 0

    text = (restored / "broker.conf").read_text()
    assert f"aclFile={restored / 'conf' / 'plain_acl.yml'}\n" in text
    assert f"tls.server.keyPath={restored / 'conf' / 'server.key'}\n" in text
    assert (restored / "conf" / "server.key").read_text() == "a key\n"
    assert (restored / "conf" / "acl" / "more.yml").read_text() == "accounts: []\n"
    assert str(outside) not in text


def test_an_external_store_is_restored_into_the_data_directory(tmp_path: Path) -> None:
    data, target, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    make(tmp_path / "first")
    data.mkdir()
    (tmp_path / "first" / "store").rename(tmp_path / "disk")
    (tmp_path / "disk" / "commitlog").rename(tmp_path / "log")
    file = tmp_path / "own.conf"
    file.write_text(
        f"storePathRootDir={tmp_path / 'disk'}\nstorePathCommitLog={tmp_path / 'log'}\n"
    )

    copied = run("backup", target, "--data", data, "-c", file)
    assert copied.returncode == 0, copied.stderr
    assert "The console's database doesn't exist" in copied.stderr
    assert run("restore", target, "--data", restored).returncode == 0

    assert len(backups.bodies(restored, 0)) == COUNT // 2
    text = (restored / "broker.conf").read_text()
    assert f"storePathCommitLog={restored / 'store' / 'commitlog'}\n" in text


def test_the_lake_is_backed_up_unless_it_is_left_out(data: Path, tmp_path: Path) -> None:
    table = data / "lake" / "bronze" / "messages"
    table.mkdir(parents=True)
    (table / "part.parquet").write_bytes(b"rows")
    (data / "lake" / "lake.lock").touch()

    with_lake = run("backup", tmp_path / "with", "--data", data)
    without = run("backup", tmp_path / "without", "--data", data, "--without-lake")
    made = run("restore", tmp_path / "with", "--data", tmp_path / "restored")

    assert with_lake.returncode == without.returncode == made.returncode == 0
    assert (tmp_path / "restored" / "lake" / "bronze" / "messages" / "part.parquet").exists()
    assert f"deploy/up --data {tmp_path / 'restored'} --lake" in made.stdout
    assert "WARNING not included: The lake" in without.stderr
    assert not (tmp_path / "without" / "lake").exists()


def test_data_stored_elsewhere_is_reported(data: Path, tmp_path: Path) -> None:
    (data / "elsewhere").symlink_to("/etc")

    done = run(
        "backup",
        tmp_path / "backup",
        "--data",
        data,
        DATABASE_URL="postgres://console@db/console",
        TREBUCHET_LAKE="s3://bucket/lake",
    )

    assert done.returncode == 0, done.stderr
    assert "The console's database is elsewhere (DATABASE_URL)" in done.stderr
    assert "The lake is elsewhere: s3://bucket/lake" in done.stderr
    assert f"{data / 'elsewhere'} is a symbolic link" in done.stderr
    manifest = backup_manifest.decode((tmp_path / "backup" / "manifest.json").read_bytes())
    assert len(manifest.left_out) == 3
    assert not any(entry.path.startswith("elsewhere") for entry in manifest.files)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root copies for another user")
def test_root_copies_nothing_unreadable_for_the_appliances_user(data: Path, tmp_path: Path) -> None:
    nobody = 65534
    for path in (data, *data.rglob("*")):
        os.chown(path, nobody, nobody)
    secret = tmp_path / "shadow"
    secret.write_text("root's\n")
    secret.chmod(0o600)
    with (data / "broker.conf").open("a") as file:
        file.write(f"aclEnable=true\naclFile={secret}\n")

    done = run("backup", tmp_path / "backup", "--data", data)

    assert done.returncode == 2
    assert "The user of the data directory can't read" in done.stderr
    assert not list(tmp_path.glob("backup*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_root_gives_restored_files_to_their_former_user(data: Path, tmp_path: Path) -> None:
    nobody = 65534
    for path in (data, *data.rglob("*")):
        os.chown(path, nobody, nobody)

    assert run("backup", tmp_path / "backup", "--data", data).returncode == 0
    assert run("restore", tmp_path / "backup", "--data", tmp_path / "restored").returncode == 0

    restored = tmp_path / "restored"
    assert {path.lstat().st_uid for path in (restored, *restored.rglob("*"))} == {nobody}


def test_progress_shows_share_rate_and_time_left() -> None:
    progress = Progress(1000, is_shown=False)
    progress.add(250)

    line = progress.line(2.0)

    assert line == "[######..................] 25 %  250.0 B of 1000.0 B  125.0 B/s  0:06 left"
    assert Progress(0, is_shown=False).line(0.0) == "0.0 B, 0.0 B/s"
