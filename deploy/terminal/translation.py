"""Translates the output of deploy/up to the user's language: English or Chinese.

Standard library only: the first lines are printed before anything is installed.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from typing import TYPE_CHECKING

from deploy.terminal.chinese import SENTENCES

if TYPE_CHECKING:
    from collections.abc import Mapping

ENGLISH, CHINESE = "en", "zh-hans"
VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
LOCALES = ("zh", "zh_CN", "zh_SG", "zh_Hans")


def language(environment: Mapping[str, str] = os.environ) -> str:
    """Return the language that the environment asks for: TREBUCHET_LANGUAGE, else the locale's."""
    asked = environment.get("TREBUCHET_LANGUAGE", "").strip().lower()
    if asked:
        return CHINESE if asked == CHINESE else ENGLISH
    locale = next((environment[name] for name in VARIABLES if environment.get(name)), "")
    return CHINESE if locale.partition(".")[0].partition("@")[0] in LOCALES else ENGLISH


def translated(sentence: str, /, **values: object) -> str:
    """Return an English sentence in the terminal's language, with its values filled in."""
    if language() == CHINESE and _can_be_shown():
        sentence = SENTENCES.get(sentence, sentence)
    return sentence.format(**values)


def _can_be_shown() -> bool:
    try:
        "中".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def padded(text: str, columns: int) -> str:
    """Pad a text with blanks; a Chinese character takes two columns of a terminal."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return text + " " * (columns - len(text) - wide)
