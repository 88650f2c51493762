"""The tidy rules: each takes a source and yields violations, with the line and the fix."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.sources import Source, source_of_module

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTION_LINES_MAX = 80
MODULE_LINES_MAX = 600
TEMPLATE_COLUMNS_MAX = 160

# Documented, public members with private-looking names.
PUBLIC_BY_DOCUMENTATION = {
    "_asdict": "typing.NamedTuple",
    "_fields": "typing.NamedTuple",
    "_make": "typing.NamedTuple",
    "_replace": "typing.NamedTuple",
    "_meta": "django.db.models.Model",
    "_exit": "os",
    "_set_running_loop": "asyncio.events",
}
BANNER = re.compile(r"#\s*[-=*#~_+]{2,}|#.*[-=*#~_+]{4,}\s*$")
# `monkeypatch.setattr(store, "_log", …)` accesses `store._log`.
BY_NAME = {"getattr", "setattr", "delattr", "hasattr", "attrgetter", "methodcaller", "object"}
DOTTED_PRIVATE = re.compile(r"(?:[a-z]\w*\.)+(?:\w+\.)*_[a-z]\w*")
OWN = {"self", "cls"}
WAY_OUT = "use or add a public way"

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation of a rule; `subject` names it in a list of exceptions."""

    path: str
    line: int
    subject: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def banners(source: Source) -> Iterator[Finding]:
    """Yield comments that separate sections with a line of characters."""
    if not any(map(BANNER.match, re.findall("(?=(#.*))", source.text))):
        return  # tokenizing all files takes seconds
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT and BANNER.match(token.string):
            what = f"banner comment {token.string[:40]!r}: delete it, or split the module there"
            yield Finding(source.path, token.start[0], "banner", what)


def long_modules(source: Source) -> Iterator[Finding]:
    lines = len(source.lines)
    if lines > MODULE_LINES_MAX:
        what = f"the module has {lines} lines, more than {MODULE_LINES_MAX}: split it by topic"
        yield Finding(source.path, MODULE_LINES_MAX + 1, "module", what)


def long_functions(source: Source) -> Iterator[Finding]:
    """Yield functions above the length limit, from `def` to the last line, docstring included."""
    for name, node in _functions(source.tree):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            what = f"{name} has {lines} lines, more than {FUNCTION_LINES_MAX}: extract functions"
            yield Finding(source.path, node.lineno, name, what)


def private_touches(source: Source) -> Iterator[Finding]:
    """Yield uses of private members that ruff's SLF001 doesn't find: by import, by name, inherited.

    A class may use those of a base class in the same package.
    """
    yield from _private_imports(source)
    yield from _private_by_name(source)
    own = _members(source.tree)
    for node in source.nodes:
        if not isinstance(node, ast.Attribute) or not _is_private(node.attr):
            continue
        owner, name = ast.unparse(node.value), node.attr
        if name in PUBLIC_BY_DOCUMENTATION:
            continue
        is_inherited = owner in OWN or owner == "super()"
        if is_inherited and name not in own and name not in _inherited(source):
            what = f"{owner}.{name} is private to a base class in another package: {WAY_OUT}"
            yield Finding(source.path, node.lineno, f"{owner}.{name}", what)


def _private_imports(source: Source) -> Iterator[Finding]:
    for node in source.nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if any(map(_is_private, name.split("."))):
                what = f"{name} is private: {WAY_OUT}"
                yield Finding(source.path, node.lineno, name, what)


def _private_by_name(source: Source) -> Iterator[Finding]:
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else None
        called = node.func.id if isinstance(node.func, ast.Name) else called
        if called not in BY_NAME | {"patch"} or _is_of_self(node):
            continue
        for argument in node.args[:2]:
            if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                continue
            name = argument.value
            if name in PUBLIC_BY_DOCUMENTATION:
                continue
            if _is_private(name) or DOTTED_PRIVATE.fullmatch(name):
                what = f"{called}(… {name!r}) reaches a private member: {WAY_OUT}"
                yield Finding(source.path, argument.lineno, name, what)


def _is_of_self(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Name) and call.args[0].id in OWN


def long_lines(path: str, lines: list[str]) -> Iterator[Finding]:
    """Yield template lines above the length limit."""
    for number, line in enumerate(lines, start=1):
        if len(line) > TEMPLATE_COLUMNS_MAX:
            what = f"the line has {len(line)} columns, more than {TEMPLATE_COLUMNS_MAX}: break it"
            yield Finding(path, number, "template", what)


def _is_private(name: str) -> bool:
    is_dunder = name.startswith("__") and name.endswith("__")
    return name.startswith("_") and not is_dunder and name.strip("_") != ""


def _functions(
    node: ast.AST, above: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield each function with its dotted name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue  # which has none
        name = above
        if isinstance(child, (*FUNCTION, ast.ClassDef)):
            name = f"{above}.{child.name}".lstrip(".")
        if isinstance(child, FUNCTION):
            yield name, child
        yield from _functions(child, name)


def _members(node: ast.AST) -> set[str]:
    """Return the private names that a class, or a whole module, declares."""
    names = set()
    for child in ast.walk(node):
        if isinstance(child, (*FUNCTION, ast.ClassDef)):
            names.add(child.name)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            names.add(child.id)
        elif (
            isinstance(child, ast.Attribute)
            and isinstance(child.ctx, ast.Store)
            and ast.unparse(child.value) in OWN
        ):
            names.add(child.attr)
    return {name for name in names if _is_private(name)}


def _inherited(source: Source) -> set[str]:
    """Return the names that base classes in other modules of the same package declare."""
    origins = {
        alias.asname or alias.name: node.module or ""
        for node in source.nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names: set[str] = set()
    for node in source.nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            named = base.value if isinstance(base, ast.Subscript) else base
            module = origins.get(ast.unparse(named), "")
            parent = source_of_module(module) if module else None
            if parent is not None and parent.package == source.package:
                names |= _members(parent.tree) | _inherited(parent)
    return names
