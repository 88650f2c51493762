"""Message catalogues without GNU gettext: extract, read and write.

Django's `makemessages` calls xgettext, which few machines have. These readers find the same words.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import polib
from django.utils.translation.template import templatize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONSOLE = Path(__file__).resolve().parents[2] / "console"
CATALOGUES = CONSOLE / "locale" / "en" / "LC_MESSAGES"
PYTHON_CALLS = {"_", "gettext", "gettext_lazy", "gettext_noop", "ngettext"}
CONTEXT_CALLS = {"pgettext", "pgettext_lazy"}
CALL = re.compile(
    r"""\b(_|gettext|ngettext|pgettext)\((?:(?<=pgettext\()\s*u?'[^']*',)?"""
    r"""\s*u?((?:"(?:[^"\\]|\\.)*")|(?:'(?:[^'\\]|\\.)*'))"""
)
REPORTS = CONSOLE.parent / "analytics" / "reports"
INPUTS = CONSOLE.parent / "analytics" / "inputs.py"


def words_of_python() -> Iterator[tuple[str, str]]:
    """Yield file and text of each call that translates a constant."""
    for path in sources("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in PYTHON_CALLS:
                texts = node.args[:1]
            elif node.func.id in CONTEXT_CALLS:
                texts = node.args[1:2]
            else:
                continue
            for text in texts:
                if isinstance(text, ast.Constant):
                    yield path.name, str(text.value)


def words_of_templates() -> Iterator[tuple[str, str]]:
    for path in sources("*.html"):
        for _call, text in CALL.findall(templatize(path.read_text())):
            yield path.name, str(ast.literal_eval(text))


def words_of_scripts() -> Iterator[tuple[str, str]]:
    for path in sources("*.js"):
        for _call, text in CALL.findall(path.read_text()):
            yield path.name, str(ast.literal_eval(text))


def sources(pattern: str) -> Iterator[Path]:
    """Yield the files of the console, and of the reports, with translatable text."""
    for folder in (CONSOLE, REPORTS):
        yield from (path for path in sorted(folder.rglob(pattern)) if "vendor" not in path.parts)
    if INPUTS.match(pattern):
        yield INPUTS


def msgids(file: Path) -> set[str]:
    """Return the message IDs of a `.po` file."""
    return {entry.msgid for entry in polib.pofile(str(file))}


def write_mo(file: Path, language: str, table: Mapping[str, str]) -> None:
    """Write a compiled catalogue, as msgfmt does; plurals are singular NUL plural."""
    catalogue = polib.POFile()
    catalogue.metadata = {"Language": language, "Content-Type": "text/plain; charset=UTF-8"}
    for key, text in table.items():
        english, _, plural = key.partition("\0")
        forms = dict(enumerate(text.split("\0"))) if plural else {}
        message = "" if plural else text
        catalogue.append(
            polib.POEntry(msgid=english, msgid_plural=plural, msgstr=message, msgstr_plural=forms)
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    catalogue.save_as_mofile(str(file))
