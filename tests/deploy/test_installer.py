"""Tools for installing a fresh checkout: uv, from pip's configured index, next to the compiler."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import pytest

from deploy.commands import bootstrap
from deploy.install import virtualenv
from deploy.install.installer import Installer, uv_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS_MAX = 60


@pytest.mark.parametrize(
    ("configuration", "report"),
    [
        ("", {}),
        (
            "global.index-url='https://mirror/simple'\n"
            "global.extra-index-url='\\nhttps://a/simple\\nhttps://b/simple'\n"
            "global.trusted-host='mirror other'\n"
            "install.find-links='/opt/wheels /srv/wheels'\n",
            {
                "UV_DEFAULT_INDEX": "https://mirror/simple",
                "UV_INDEX": "https://a/simple https://b/simple",
                "UV_INSECURE_HOST": "mirror other",
                "UV_FIND_LINKS": "/opt/wheels,/srv/wheels",
            },
        ),
        (
            ":env:.cert='/etc/ssl/own.pem'\n:env:.default-timeout='180'\n:env:.proxy='http://p:1'\n"
            "global.cert='/etc/ssl/other.pem'\nglobal.no-index='yes'\nlist.format='json'\n",
            {
                "SSL_CERT_FILE": "/etc/ssl/own.pem",
                "UV_HTTP_TIMEOUT": "180",
                "ALL_PROXY": "http://p:1",
                "no-index": "true",
            },
        ),
    ],
)
def test_uv_looks_where_pip_is_configured_to_look(
    configuration: str, report: dict[str, str]
) -> None:
    assert uv_environment(configuration) == {"UV_SYSTEM_CERTS": "true", **report}


def test_pip_reports_its_configuration_without_being_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(virtualenv, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(virtualenv, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    monkeypatch.setattr(virtualenv, "install", lambda *_: None)
    with virtualenv.made():
        pass

    installer = Installer(tmp_path / ".venv")

    assert not (tmp_path / ".venv" / "bin" / "pip").exists()
    assert installer.pip_environment()["UV_FIND_LINKS"] == str(wheels)


def test_the_compiler_runs_while_packages_are_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "python"
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    installed = tmp_path / "installed"
    compiler.write_text(
        f"#!/bin/sh\ntouch {begun}\nuntil [ -e {installed} ]; do sleep 0.01; done\ntouch {ended}\n"
    )
    compiler.chmod(0o755)

    @contextlib.contextmanager
    def made() -> Iterator[Path]:
        yield compiler

    def install(*_: Path) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not begun.exists():
            assert time.monotonic() < deadline, "nothing is compiled"
            time.sleep(0.01)
        assert not ended.exists()
        installed.touch()

    monkeypatch.delenv("TREBUCHET_NATIVE", raising=False)
    monkeypatch.setattr(virtualenv, "made", made)
    monkeypatch.setattr(virtualenv, "install", install)

    assert bootstrap.ready(tmp_path / "requirements.txt") == compiler
    assert ended.exists(), "the start continued before the compiler ended"


def test_a_compiler_exits_with_a_failing_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "python"
    compiler.write_text("#!/bin/sh\nexec sleep 600\n")
    compiler.chmod(0o755)

    @contextlib.contextmanager
    def made() -> Iterator[Path]:
        yield compiler

    def install(*_: Path) -> None:
        raise virtualenv.SetupError("no network")

    monkeypatch.delenv("TREBUCHET_NATIVE", raising=False)
    monkeypatch.setattr(virtualenv, "made", made)
    monkeypatch.setattr(virtualenv, "install", install)
    before = time.monotonic()

    with pytest.raises(virtualenv.SetupError, match="no network"):
        bootstrap.ready(tmp_path / "requirements.txt")

    assert time.monotonic() - before < SECONDS_MAX
