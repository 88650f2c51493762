from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy import options
from deploy.virtualenv import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_without_anything_set_it_is_all_in_the_checkout() -> None:
    asked = options.parse([], {})

    assert asked.data == ROOT / "data"
    assert (asked.web_host, asked.web_port) == ("127.0.0.1", 8000)
    assert asked.broker_file is None
    assert asked.redis_url is None


def test_paths_are_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    asked = options.parse(["-c", "broker.conf"], {"TREBUCHET_DATA": "elsewhere"})

    assert asked.broker_file == tmp_path / "broker.conf"
    assert asked.data == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:8000", ("::1", 8000)), (" ", ("127.0.0.1", 8000))],
)
def test_an_address_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    asked = options.parse([], {"TREBUCHET_WEB": text})

    assert (asked.web_host, asked.web_port) == expected


@pytest.mark.parametrize("text", ["8000", ":8000", "host:", "host:0", "host:65536", "host:8e3"])
def test_an_address_that_is_none_names_the_variable(text: str) -> None:
    with pytest.raises(options.OptionError, match="TREBUCHET_WEB") as error:
        options.parse([], {"TREBUCHET_WEB": text})

    assert text in str(error.value)


def test_help_names_every_variable_that_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(["--help"], {})

    assert ended.value.code == 0
    text = capsys.readouterr().out
    for name in ("TREBUCHET_WEB", "TREBUCHET_DATA", "TREBUCHET_REDIS_URL", "TREBUCHET_USER"):
        assert name in text
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("arguments", [["-c"], ["--unknown"], ["stray"]])
def test_arguments_that_make_no_sense_end_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(arguments, {})

    assert ended.value.code == 2
    assert "usage: deploy/up" in capsys.readouterr().err
