"""Locks: all dependencies of requirements files, by version and hash, without network access."""

from __future__ import annotations

import re
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from deploy.commands import bootstrap, lock
from deploy.install import requirements, virtualenv
from deploy.install.requirements import (
    BUILD,
    FILES,
    ROOT,
    RUN,
    TEST,
    entries,
    lock_of,
    normal,
    pins,
)

if TYPE_CHECKING:
    from pathlib import Path


def locked(file: Path) -> dict[str, str]:
    return {entry.name: entry.version for entry in entries(file)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_lock_file_has_its_sources_pins_and_each_entry_once(file: Path) -> None:
    # The reader rejects an entry without a hash.
    found = list(entries(file))

    assert pins(file).items() <= locked(file).items()
    assert len(found) == len(locked(file))
    named = {f"-r {file.relative_to(ROOT)}"}
    assert all(entry.wanted_by for entry in found)
    assert {entry.name for entry in found if named & {*entry.wanted_by}} >= pins(file).keys()


@pytest.mark.parametrize(
    "text",
    [
        "django==5.2.19\n",
        f"django==5.2.19 --hash=md5:{32 * 'a'}\n",
        f"django --hash=sha256:{64 * 'a'}",
    ],
)
def test_an_entry_without_version_or_hash_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "requirements.lock").write_text(f"# by hand\n{text}")

    with pytest.raises(ValueError, match="django"):
        list(entries(tmp_path / "requirements.txt"))


def test_every_requirements_file_has_a_lock() -> None:
    root = ROOT
    found = {*root.glob("requirements*.txt"), *root.glob("*/requirements*.txt")}

    assert found == set(FILES)


def test_the_locks_for_running_and_testing_agree() -> None:
    run, test = locked(RUN), locked(TEST)

    assert {name: test[name] for name in run.keys() & test} == {
        name: run[name] for name in run.keys() & test
    }


def test_a_lock_file_includes_all_transitive_dependencies() -> None:
    known = locked(RUN) | locked(TEST) | locked(BUILD)
    target = [*locked(RUN), *locked(TEST)]
    seen: set[str] = set()
    while target:
        name = target.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            installed = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # its marker is for another Python or machine
        assert known.get(name) == installed.version, name
        target += [
            normal(re.split(r"[^A-Za-z0-9._-]", one)[0])
            for one in installed.requires or []
            if "extra ==" not in one
        ]

    assert {"django", "kombu", "py4j", "pluggy"} <= seen


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_command_writes_beside_the_file(file: Path) -> None:
    command = lock.command(file, upgrade=False)

    assert "--generate-hashes" in command
    assert "--universal" in command
    assert command[-3:] == [
        "--output-file",
        str(lock_of(file).relative_to(ROOT)),
        str(file.relative_to(ROOT)),
    ]
    assert "--upgrade" not in command
    assert "--upgrade" in lock.command(file, upgrade=True)


def test_only_locks_are_installed_and_only_by_hash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[list[str]] = []

    class Done:
        returncode = 0
        stdout = ""

    def run(command: list[object], **_: object) -> Done:
        ran.append([str(word) for word in command])
        return Done()

    (tmp_path / ".venv").mkdir()
    (tmp_path / "deploy").mkdir()
    for name in ("requirements", "deploy/requirements-build", "deploy/requirements-uv"):
        (tmp_path / f"{name}.lock").write_text("first")
    monkeypatch.setattr(virtualenv, "ROOT", tmp_path)
    monkeypatch.setattr(virtualenv, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(requirements, "ROOT", tmp_path)
    monkeypatch.setattr(requirements, "BUILD", tmp_path / "deploy" / "requirements-build.txt")
    monkeypatch.setattr(requirements, "UV", tmp_path / "deploy" / "requirements-uv.txt")
    monkeypatch.setattr("subprocess.run", run)

    def installed() -> list[str]:
        ran.clear()
        virtualenv.ensure(tmp_path / "requirements.txt")
        return [command[-1] for command in ran if "--require-hashes" in command]

    uv, build, run_lock = (
        str(tmp_path / f"{name}.lock")
        for name in ("deploy/requirements-uv", "deploy/requirements-build", "requirements")
    )
    assert installed() == [uv, build, run_lock]
    by_uv = [command for command in ran if command[0].endswith("/uv")]
    assert [command[-1] for command in by_uv] == [build, run_lock]
    assert all({"--no-deps", "--no-build-isolation"} <= set(command) for command in by_uv)
    assert installed() == []
    (tmp_path / "requirements.lock").write_text("second")
    assert installed() == [run_lock]


def test_packages_needed_by_settings_are_installed_with_the_rest() -> None:
    assert bootstrap.wanted({"TREBUCHET_SPARK_MASTER": "spark://spark-1:7077"}) == []
    assert bootstrap.wanted({"TREBUCHET_SPARK_MASTER": "sc://spark-1"}) == [requirements.CONNECT]
    assert bootstrap.wanted({"TREBUCHET_OTLP_ENDPOINT": "http://c:4318"}) == [requirements.OTLP]
