from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.class_archive import VARIABLE, ClassArchive
from analytics.java import require_java

if TYPE_CHECKING:
    from analytics.session import Spark


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A file that looks like a different Java."""
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    return java


def archive_of(java: Path) -> ClassArchive:
    found = ClassArchive.of(java, {VARIABLE: str(java.parent / "classes")})
    assert found is not None
    return found


def test_without_a_directory_there_is_no_archive(java: Path) -> None:
    assert ClassArchive.of(java, {VARIABLE: " "}) is None


def test_a_session_has_java_write_the_archive_and_the_next_one_uses_it(java: Path) -> None:
    first = archive_of(java)
    written = Path(first.options.partition("-XX:ArchiveClassesAtExit=")[2].partition('"')[0])
    written.touch()
    old = first.directory / "spark-0123.jsa"
    old.touch()

    first.keep()

    assert f'"-XX:SharedArchiveFile={first.file}"' in archive_of(java).options
    assert [path.name for path in first.directory.glob("*.*")] == [first.file.name]
    assert not list(first.conf.iterdir())


def test_a_session_without_javas_archive_keeps_nothing(java: Path) -> None:
    archive = archive_of(java)

    archive.keep()

    assert not archive.file.exists()


def test_an_archive_writable_by_others_is_not_used(java: Path) -> None:
    archive = archive_of(java)
    archive.directory.chmod(0o770)

    assert ClassArchive.of(java, {VARIABLE: str(archive.directory)}) is None


def test_a_directory_that_cannot_be_created_only_loses_the_archive(java: Path) -> None:
    assert ClassArchive.of(java, {VARIABLE: str(java / "classes")}) is None


def test_another_java_has_another_archive(java: Path) -> None:
    first = archive_of(java)
    os.utime(java, ns=(1, 1))

    assert archive_of(java).file != first.file


@pytest.mark.spark
def test_spark_has_mapped_the_class_archive_of_all_tests(running_spark: Spark) -> None:
    archive = ClassArchive.of(require_java())

    assert archive is not None
    assert str(archive.file) in Path(f"/proc/{running_spark.java_pid}/maps").read_text()
