from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from analytics.errors import ReportError
from analytics.java import main, require_java

ROOT = Path(__file__).resolve().parent.parent.parent


def a_java(home: Path, says: str, *, code: int = 0) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "25"])
def test_java_17_or_later_is_accepted(tmp_path: Path, version: str) -> None:
    java = a_java(tmp_path, f'openjdk version "{version}" 2025-04-15')

    assert require_java({"PATH": str(java.parent)}) == java


def test_java_home_takes_precedence_over_the_path(tmp_path: Path) -> None:
    home = a_java(tmp_path / "home", 'openjdk version "17.0.1"')
    other = a_java(tmp_path / "other", 'openjdk version "21.0.1"')

    assert require_java({"PATH": str(other.parent), "JAVA_HOME": str(tmp_path / "home")}) == home


@pytest.mark.parametrize(
    ("says", "number"),
    [('openjdk version "11.0.2"', "Java 11"), ('java version "1.8.0_292"', "Java 8")],
)
def test_an_older_java_is_named_with_the_installation_command(
    tmp_path: Path, says: str, number: str
) -> None:
    java = a_java(tmp_path, says)

    with pytest.raises(ReportError, match=f"{number}: .*apt-get install openjdk-17") as refused:
        require_java({"PATH": str(java.parent)})

    assert str(java) in str(refused.value)


def test_a_java_that_prints_nothing_is_rejected(tmp_path: Path) -> None:
    a_java(tmp_path, "Segmentation fault", code=139)

    with pytest.raises(ReportError, match="doesn't report its version"):
        require_java({"JAVA_HOME": str(tmp_path)})


def test_a_java_that_does_not_run_is_rejected(tmp_path: Path) -> None:
    java = a_java(tmp_path, "")
    java.write_bytes(b"\x7fELF no program")

    with pytest.raises(ReportError, match="can't be run"):
        require_java({"JAVA_HOME": str(tmp_path)})


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=f"JAVA_HOME is {tmp_path}, which has no bin/java"):
        require_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})


def test_missing_java_is_reported_in_one_sentence_with_the_command() -> None:
    with pytest.raises(ReportError, match="apt-get install openjdk-17-jre-headless") as refused:
        require_java({"PATH": "/nowhere"})

    assert "set JAVA_HOME to the directory that holds bin/java" in str(refused.value)


def probe(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run the probe as deploy and the console do, without any installed package."""
    return subprocess.run(
        [sys.executable, "-S", "-m", "analytics.java"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_probe_only_needs_the_standard_library_and_offers_advice(tmp_path: Path) -> None:
    found = probe(PATH="/usr/bin", JAVA_HOME=str(tmp_path))

    assert found.stderr == ""
    assert found.returncode == 1
    assert json.loads(found.stdout) == {
        "sentence": f"Reports need Java 17 or later, and JAVA_HOME is {tmp_path}, which has no "
        "bin/java.",
        "remedy": "Install it, or set JAVA_HOME to the directory that holds bin/java:",
        "command": "apt-get install openjdk-17-jre-headless",
    }


def test_the_probe_is_silent_if_java_is_installed(tmp_path: Path) -> None:
    a_java(tmp_path, 'openjdk version "21.0.2"')

    found = probe(PATH="/usr/bin", JAVA_HOME=str(tmp_path))

    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_a_spark_connect_server_needs_no_local_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    assert main() == 1
    monkeypatch.setenv("TREBUCHET_SPARK_MASTER", "sc://spark-1:15002")
    assert main() == 0
