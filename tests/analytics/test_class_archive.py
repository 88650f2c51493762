from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics import class_archive
from analytics.errors import ReportError

if TYPE_CHECKING:
    from analytics.session import Spark


def java_in(directory: Path) -> Path:
    """Something that is another Java for whoever looks at the file."""
    java = directory / "java"
    java.write_text("#!/bin/sh\necho 'version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    return java


def test_without_a_directory_there_is_no_archive(tmp_path: Path) -> None:
    assert class_archive.directory({class_archive.VARIABLE: " "}) is None
    assert class_archive.options_for(None, java_in(tmp_path)) == ""


def test_an_archive_is_taken_once_it_is_there(tmp_path: Path) -> None:
    java, place = java_in(tmp_path), tmp_path / "classes"
    place.mkdir(mode=0o700)

    before = class_archive.options_for(place, java)
    archive = class_archive.archive_in(place, java)
    archive.touch()

    assert before == ""
    assert f'"-XX:SharedArchiveFile={archive}"' in class_archive.options_for(place, java)


def test_an_archive_that_others_could_have_written_is_not_taken(tmp_path: Path) -> None:
    java, place = java_in(tmp_path), tmp_path / "classes"
    place.mkdir()
    place.chmod(0o770)
    class_archive.archive_in(place, java).touch()

    assert class_archive.options_for(place, java) == ""
    with pytest.raises(ReportError, match="must be this user's with mode 0700"):
        class_archive.make(place)


def test_another_java_has_another_archive(tmp_path: Path) -> None:
    java = java_in(tmp_path)
    first = class_archive.archive_in(tmp_path, java)
    os.utime(java, ns=(1, 1))

    assert class_archive.archive_in(tmp_path, java) != first


def test_whoever_comes_second_leaves_it_to_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(java_in(tmp_path).parent))
    place = tmp_path / "classes"
    place.mkdir(mode=0o700)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        assert class_archive.make(place) is False


def test_the_command_says_what_it_lacks() -> None:
    environment = {**os.environ, class_archive.VARIABLE: ""}

    ended = subprocess.run(
        [sys.executable, "-m", "analytics.class_archive"],
        env=environment,
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 1
    assert ended.stderr == "TREBUCHET_SPARK_CLASSES must name the directory for the archive.\n"


@pytest.mark.spark
def test_a_running_spark_has_mapped_the_archive(running_spark: Spark) -> None:
    place = class_archive.directory()
    assert place is not None
    (archive,) = place.glob("*.jsa")

    assert str(archive) in Path(f"/proc/{running_spark.java_pid}/maps").read_text()
    assert not list(class_archive.conf_in(place).iterdir())
    assert not [path for path in place.iterdir() if path.name.startswith(".making-")]
