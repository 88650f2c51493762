from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from broker_core.environment import is_secret
from deploy.install.virtualenv import ROOT
from deploy.settings import options, secret_files, variables
from deploy.settings.variables import SETTINGS, Setting
from deploy.terminal.chinese import SENTENCES

if TYPE_CHECKING:
    from pathlib import Path


def test_by_default_everything_is_in_the_checkout() -> None:
    request = options.parse([], {})

    assert request.data == ROOT / "data"
    assert (request.web_host, request.web_port) == ("127.0.0.1", 8000)
    assert request.broker_file is None
    assert request.redis_url is None


def test_paths_are_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    request = options.parse(["-c", "broker.conf"], {"TREBUCHET_DATA": "elsewhere"})

    assert request.broker_file == tmp_path / "broker.conf"
    assert request.data == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:8000", ("::1", 8000)), (" ", ("127.0.0.1", 8000))],
)
def test_an_address_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    request = options.parse([], {"TREBUCHET_WEB": text})

    assert (request.web_host, request.web_port) == expected


@pytest.mark.parametrize("text", ["8000", ":8000", "host:", "host:0", "host:65536", "host:8e3"])
def test_an_invalid_address_names_the_variable(text: str) -> None:
    with pytest.raises(options.OptionError, match="TREBUCHET_WEB") as error:
        options.parse([], {"TREBUCHET_WEB": text})

    assert text in str(error.value)


def test_an_option_takes_precedence_over_its_variable(tmp_path: Path) -> None:
    environment = {one.variable: one.words[-1] if one.words else "other:1" for one in SETTINGS}
    arguments = ["--data", str(tmp_path), "--web", "[::1]:81", "--user", "ada", "--lake", "--slave"]

    request = options.parse(arguments, environment)

    assert (request.data, request.web_host, request.web_port) == (tmp_path, "::1", 81)
    assert (request.user, request.lake, request.has_slave) == ("ada", "true", True)
    assert request.chosen == {
        "TREBUCHET_DATA": str(tmp_path),
        "TREBUCHET_WEB": "[::1]:81",
        "TREBUCHET_USER": "ada",
        "TREBUCHET_LAKE": "true",
        "TREBUCHET_SLAVE": "true",
    }
    assert options.parse(["--lake", "s3://b/p"], {}).lake == "s3://b/p"
    assert options.parse([], {"TREBUCHET_LAKE": "/lake"}).lake == "/lake"


def test_an_invalid_address_names_its_option() -> None:
    with pytest.raises(options.OptionError, match=r"^--web is 'x'; expected host:port"):
        options.parse(["--web", "x"], {"TREBUCHET_WEB": "127.0.0.1:8000"})


@pytest.mark.parametrize("one", SETTINGS, ids=lambda one: one.option)
def test_an_option_has_the_same_effect_as_its_variable(one: Setting) -> None:
    value = (one.words or ("host:1",))[0]
    arguments = [one.option, value] if one.value else [one.option]

    by_option = options.parse(arguments, {})

    assert by_option.chosen == {one.variable: value if one.value else "true"}
    assert replace(by_option, chosen={}) == options.parse([], by_option.chosen)


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (["--data", " "], {}, "--data is empty; expected DIR."),
        (["--lake="], {}, "--lake is empty; expected PLACE."),
        (["--language", "fr"], {}, "--language is 'fr'; expected en, zh-hans."),
        (
            [],
            {"TREBUCHET_LOG_FORMAT": "xml"},
            "TREBUCHET_LOG_FORMAT is 'xml'; expected lines, json.",
        ),
        (
            ["--log-level", "loud"],
            {"TREBUCHET_LOG_LEVEL": "INFO"},
            "--log-level is 'loud'; expected DEBUG, INFO, WARN, WARNING, ERROR, CRITICAL.",
        ),
        (
            [],
            {"TREBUCHET_SLAVE": "maybe"},
            "TREBUCHET_SLAVE is 'maybe'; expected 1, true, yes, on, 0, false, no, off.",
        ),
        (
            ["--otlp-endpoint", "http://user:hidden@host:4318"],
            {},
            "--otlp-endpoint contains a password, and every user of this machine can read a "
            "command's arguments; leave the password out.",
        ),
    ],
)
def test_an_invalid_value_is_rejected_in_one_sentence(
    arguments: list[str], environment: dict[str, str], sentence: str
) -> None:
    with pytest.raises(options.OptionError) as refused:
        options.parse(arguments, environment)

    assert str(refused.value) == sentence


@pytest.mark.parametrize(("word", "has_slave"), [("on", True), ("Yes", True), ("off", False)])
def test_a_slave_is_required_with_any_of_the_words(word: str, has_slave: bool) -> None:
    assert options.parse([], {"TREBUCHET_SLAVE": word}).has_slave is has_slave


@pytest.mark.parametrize("one", SETTINGS, ids=lambda one: one.option)
def test_an_option_contains_no_secret_and_has_a_chinese_help(one: Setting) -> None:
    assert not is_secret(one.variable, "")
    assert one.variable not in secret_files.NAMES
    assert one.help in SENTENCES


def test_every_variable_in_use_is_known() -> None:
    read = {
        name
        for folder in ("analytics", "broker_core", "console", "deploy")
        for file in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"\bTREBUCHET_[A-Z0-9_]*[A-Z0-9]\b", file.read_text())
    }

    assert len(read) > 60
    assert [name for name, _ in variables.unknown(read)] == []


def test_an_unknown_variable_is_reported_with_the_closest_known_name() -> None:
    environment = ["TREBUCHET_DAAT", "TREBUCHET_DATA", "TREBUCHET_TEST_SEED", "PATH", "DATA"]
    environment += ["TREBUCHET_COLOUR", "TREBUCHET_REDIS_URL_FILE"]

    assert list(variables.unknown(environment)) == [
        ("TREBUCHET_COLOUR", None),
        ("TREBUCHET_DAAT", "TREBUCHET_DATA"),
    ]


def test_help_names_every_option_with_its_variable_and_the_precedence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(["--help"], {})

    assert ended.value.code == 0
    text = capsys.readouterr().out
    for one in SETTINGS:
        assert re.search(rf"^  {one.option}\b", text, re.MULTILINE)
        assert f"[{one.variable}]" in " ".join(text.split())
    for name in ("TREBUCHET_ADMIN_PASSWORD", "TREBUCHET_REDIS_URL", "DATABASE_URL"):
        assert f"\n  {name} " in text
    assert "if both are set, the option wins" in text
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-c"], "Argument -c: expected one argument; deploy/up --help lists the options."),
        (["--dat", "x"], "Unrecognized arguments: --dat x; deploy/up --help lists the options."),
        (["stray"], "Unrecognized arguments: stray; deploy/up --help lists the options."),
    ],
)
def test_invalid_arguments_are_rejected_in_one_sentence(
    arguments: list[str], sentence: str
) -> None:
    with pytest.raises(options.OptionError) as refused:
        options.parse(arguments, {})

    assert str(refused.value) == sentence
