from __future__ import annotations

import os
import pwd
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from deploy.commands import up_as_root
from deploy.machine.handover import HandoverError, hand_over, require_ours
from deploy.settings import options
from tests.support.foreign_entries import leave_in

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root hands anything over")

USER = pwd.getpwnam("daemon")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory owned by root, with a file in each place."""
    data = tmp_path / "data"
    (data / "store" / "commitlog").mkdir(parents=True)
    (data / "appliance.lock").touch()
    (data / "store" / "commitlog" / "0").write_text("record")
    return data


def owners(directory: Path) -> dict[str, int]:
    found = [directory, *directory.rglob("*")]
    return {str(path.relative_to(directory)): path.lstat().st_uid for path in found}


def give(data: Path) -> list[Path]:
    return hand_over(data, USER.pw_uid, USER.pw_gid)


def test_all_of_roots_files_become_the_users(data: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(data / "redis.sock"))
    os.mkfifo(data / "pipe")

    assert give(data) == []

    assert set(owners(data).values()) == {USER.pw_uid}
    assert (data / "store").lstat().st_gid == USER.pw_gid
    assert give(data) == []


def test_a_symbolic_link_is_not_followed(data: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (data / "file").symlink_to(outside / "file")
    (data / "store" / "directory").symlink_to(outside)

    links = give(data)

    assert sorted(links) == [data / "file", data / "store" / "directory"]
    assert set(owners(outside).values()) == {0}


def test_a_file_with_a_path_outside_is_rejected_and_changes_nothing(
    data: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").touch()
    os.link(tmp_path / "secret", data / "store" / "mine")

    with pytest.raises(HandoverError, match="hard link") as error:
        give(data)

    assert str(data / "store" / "mine") in str(error.value)
    assert set(owners(data).values()) == {0}


def test_a_file_with_two_names_inside_is_transferred(data: Path) -> None:
    os.link(data / "appliance.lock", data / "store" / "appliance.lock.bak")

    give(data)

    assert set(owners(data).values()) == {USER.pw_uid}


def test_other_users_data_stays_theirs(data: Path) -> None:
    other = pwd.getpwnam("nobody").pw_uid
    os.chown(data / "store", other, other)

    give(data)

    assert owners(data)["store"] == other
    assert owners(data)["store/commitlog"] == USER.pw_uid


@pytest.mark.parametrize("owner", [0, USER.pw_uid])
def test_an_appliances_directory_may_change_hands(data: Path, owner: int) -> None:
    os.chown(data, owner, owner)

    require_ours(data, USER.pw_uid)
    require_ours(data.parent / "new", USER.pw_uid)


def test_the_operating_systems_entries_are_neither_transferred_nor_in_the_way(
    data: Path, tmp_path: Path
) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    for directory in (mounted, data / "store" / "commitlog"):
        leave_in(directory, has_notes=False)

    require_ours(mounted, USER.pw_uid)
    give(data)

    kept = {path for path, owner in owners(data).items() if owner == 0}
    assert kept == {
        f"store/commitlog/{path.relative_to(data / 'store/commitlog')}"
        for path in (data / "store" / "commitlog").rglob("*")
        if path.name != "0"
    }


def test_an_unrelated_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "passwd").touch()

    with pytest.raises(HandoverError, match="--data"):
        require_ours(tmp_path, USER.pw_uid)


def test_a_directory_of_another_user_is_rejected(data: Path) -> None:
    other = pwd.getpwnam("nobody").pw_uid
    os.chown(data, other, other)

    with pytest.raises(HandoverError, match="TREBUCHET_USER"):
        require_ours(data, USER.pw_uid)


class BecameError(Exception):
    """Raised in place of an exec."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop before the process becomes the appliance, and restore its environment."""

    def become(*_: object) -> NoReturn:
        raise BecameError

    before = os.umask(0o022)
    monkeypatch.setattr(up_as_root, "start_appliance", become)
    yield
    os.umask(before)


@pytest.mark.usefixtures("started")
def test_files_unreachable_for_the_user_stay_roots_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setenv("TREBUCHET_DATA", str(private / "data"))
    monkeypatch.setattr(options, "DEFAULT_USER", "daemon")

    with pytest.raises(BecameError):
        up_as_root.main([])

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("WARNING everything runs as root: the user daemon can't reach ")
    assert "TREBUCHET_USER=root" in line
    assert not (private / "data").exists()


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("name", ["daemon", "nobody-of-this-name"])
def test_a_requested_user_is_rejected_instead(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setenv("TREBUCHET_DATA", str(private / "data"))
    monkeypatch.setenv("TREBUCHET_USER", name)

    assert up_as_root.main([]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Not started as {name}: ")


@pytest.mark.usefixtures("started")
def test_a_configuration_unreadable_for_the_user_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TREBUCHET_USER", "daemon")
    monkeypatch.setattr(up_as_root, "ROOT", Path("/usr"))
    monkeypatch.setattr("sys.executable", "/usr/bin/env")
    monkeypatch.setattr("sys.base_prefix", "/usr")
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "broker.conf"
        file.parent.chmod(0o755)
        file.touch(mode=0o600)
        monkeypatch.setenv("TREBUCHET_DATA", str(file.parent / "data"))

        assert up_as_root.main(["-c", str(file)]) == 2

        (line,) = capsys.readouterr().err.splitlines()
        assert f"can't read {file}; run chown daemon {file}" in line
