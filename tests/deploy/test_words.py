"""Words of deploy/up: each sentence exists in Chinese, and the environment chooses."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from string import Formatter

import pytest

from deploy.terminal.chinese import SENTENCES
from deploy.terminal.translation import language, padded
from deploy.terminal.up_help import EPILOG
from tests.support.sources import ROOT

SOURCES = sorted((ROOT / "deploy").rglob("*.py"))


def constants(node: ast.AST) -> set[str]:
    found = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
    return {each for each in found if isinstance(each, str)}


def printed_sentences() -> set[str]:
    """Return the constants that are printed."""
    return {
        str(each.args[0].value)
        for source in SOURCES
        for each in ast.walk(ast.parse(source.read_text()))
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Name)
        and each.func.id == "translated"
        and isinstance(each.args[0], ast.Constant)
    }


def test_every_sentence_is_translated_to_chinese() -> None:
    assert len(printed_sentences()) > 40

    assert printed_sentences() - SENTENCES.keys() == set()


def test_every_translated_sentence_is_in_use() -> None:
    own = ROOT / "deploy" / "terminal" / "chinese.py"
    text = {
        each for file in SOURCES if file != own for each in constants(ast.parse(file.read_text()))
    }

    assert SENTENCES.keys() - text == set()


@pytest.mark.parametrize("sentence", SENTENCES, ids=range(len(SENTENCES)))
def test_a_sentence_has_the_same_values_in_both_languages(sentence: str) -> None:
    def fields(text: str) -> set[object]:
        return {each[1:] for each in Formatter().parse(text) if each[1] is not None}

    assert fields(SENTENCES[sentence]) == fields(sentence)


def test_the_help_names_the_same_variables_in_both_languages() -> None:
    def names(text: str) -> set[str]:
        return set(re.findall(r"\b[A-Z]+_[A-Z_]+[A-Z]\b", text))

    assert names(SENTENCES[EPILOG]) == names(EPILOG)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh-hans"),
        ({"LANG": "zh_TW.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_GB.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": ""}, "zh-hans"),
        ({"LANG": "zh_CN.UTF-8", "TREBUCHET_LANGUAGE": "en"}, "en"),
        ({"LANG": "en_GB.UTF-8", "TREBUCHET_LANGUAGE": "zh-Hans"}, "zh-hans"),
    ],
)
def test_the_environment_chooses_the_language(environment: dict[str, str], expected: str) -> None:
    assert language(environment) == expected


@pytest.mark.parametrize(("encoding", "is_chinese"), [("utf-8", True), ("latin-1", False)])
def test_the_help_is_chinese_if_the_terminal_can_show_it(encoding: str, is_chinese: bool) -> None:
    output = subprocess.run(
        [ROOT / "deploy" / "up", "--help"],
        env={**os.environ, "TREBUCHET_LANGUAGE": "zh-hans", "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    ).stdout.decode(encoding)

    assert ("控制台" in output) == is_chinese


def test_labels_fit_into_terminal_columns() -> None:
    assert padded("console", 12) == "console     "
    assert padded("控制台", 12) == "控制台      "
