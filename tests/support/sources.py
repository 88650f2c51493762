"""The project's own source files, as the layering and tidy tests read them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("broker_core", "console", "analytics", "deploy", "tools", "tests")
GENERATED = {"migrations", "generated.pxi"}


@dataclass(frozen=True)
class Source:
    """One Python file: its path relative to the root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def package(self) -> str:
        """The folder in dotted form, as imports spell it."""
        return self.path.rpartition("/")[0].replace("/", ".")


@cache
def python_sources() -> tuple[Source, ...]:
    """Return every handwritten Python file."""
    files = (file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py")))
    return tuple(
        Source(file.relative_to(ROOT).as_posix(), file.read_text())
        for file in (ROOT / "manage.py", *files)
        if GENERATED.isdisjoint(file.parts)
    )


@cache
def native_sources() -> tuple[Source, ...]:
    """Return every handwritten file of the compiled code: Cython, and C headers."""
    files = (ROOT / "broker_core" / "native").glob("*.[hp]*")
    return tuple(
        Source(file.relative_to(ROOT).as_posix(), file.read_text())
        for file in sorted(files)
        if file.suffix in (".pyx", ".pxd", ".pxi", ".h") and file.name not in GENERATED
    )


@cache
def source_of_module(name: str) -> Source | None:
    """Return the file of one of our modules, such as `broker_core.store.flush`."""
    path = name.replace(".", "/")
    target = {f"{path}.py", f"{path}/__init__.py"}
    return next((source for source in python_sources() if source.path in target), None)


def templates() -> Iterator[tuple[str, list[str]]]:
    """Yield path and lines of each console template."""
    for file in sorted((ROOT / "console").rglob("templates/**/*.html")):
        yield file.relative_to(ROOT).as_posix(), file.read_text().splitlines()
