"""The font with Chinese letters: installed if possible, otherwise named, or not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.observe.alerts import fonts as known
from deploy.machine import fonts, system_packages

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A machine without fonts, where root installs, started in Chinese."""
    names: list[str] = []

    def install(*packages: str) -> bool:
        names.extend(packages)
        (tmp_path / "wqy-microhei.ttc").touch()
        return True

    monkeypatch.setattr(known, "FOLDERS", (tmp_path,))
    monkeypatch.setattr(system_packages, "may_install", lambda: True)
    monkeypatch.setattr(system_packages, "install", install)
    monkeypatch.setenv("TREBUCHET_LANGUAGE", "zh-hans")
    return names


def test_root_installs_it_once(installed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    fonts.ensure()
    fonts.ensure()

    assert installed == [known.PACKAGE]
    assert capsys.readouterr().out == ""


def test_a_user_without_permission_to_install_is_told_the_command(
    installed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system_packages, "may_install", lambda: False)

    fonts.ensure()

    assert installed == []
    assert system_packages.command_for(known.PACKAGE) in capsys.readouterr().out


def test_an_english_start_installs_no_font(
    installed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TREBUCHET_LANGUAGE", "en")

    fonts.ensure()

    assert installed == []
    assert capsys.readouterr().out == ""
