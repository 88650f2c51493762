"""Mutants: one small change each of a module's source.

Parts that no test should check are skipped: annotations, the types of casts, docstrings,
`if TYPE_CHECKING`, `__slots__`, `__repr__`, assertions, log lines, exception messages, and names of
threads and tasks.
"""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
LARGEST = {"min": "max", "max": "min"}
SKIPPED_FUNCTIONS = {"__repr__", "__str__"}
SKIPPED_NAMES = {"__slots__", "__all__", "logger"}
NAMING = {"spawn", "ThreadPoolExecutor", "Thread"}
"""Calls whose string arguments name threads and tasks."""
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFERRED = (*FUNCTION, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one place in a module."""

    path: str
    """The module's path from the root."""
    scope: str
    """The function or class that contains the place, with its outer ones; empty for the module."""
    line: int
    end_line: int
    column: int
    """In bytes, as in `ast`."""
    end_column: int
    before: str
    after: str
    number: int
    """Number among identical changes within the scope, from 1."""
    is_deferred: bool
    """It's in a function body, and doesn't run at import."""

    @property
    def name(self) -> str:
        """A name that stays the same when lines are added above."""
        change = f"{_one_line(self.before)} -> {_one_line(self.after)}"
        number = f" #{self.number}" if self.number > 1 else ""
        return f"{self.path}::{self.scope}: {change}{number}"

    def apply(self, source: str) -> str:
        """Return the module's source with the change."""
        lines = source.encode().splitlines(keepends=True)
        first, last = lines[self.line - 1], lines[self.end_line - 1]
        changed = first[: self.column] + self.after.encode() + last[self.end_column :]
        return b"".join([*lines[: self.line - 1], changed, *lines[self.end_line :]]).decode()

    def diff(self, source: str) -> str:
        """Return the change as a unified diff."""
        lines = difflib.unified_diff(
            source.splitlines(), self.apply(source).splitlines(), self.path, self.path, n=2
        )
        return "\n".join(line.rstrip("\n") for line in lines)


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Return all mutants of a module, in line order."""
    reader = _Reader(path, source)
    reader.visit(ast.parse(source))
    return sorted(reader.found, key=lambda mutant: (mutant.line, mutant.column))


class _Reader(ast.NodeVisitor):
    """Walks a module's tree and collects possible changes."""

    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._lines = source.encode().splitlines(keepends=True)
        self._scopes: list[str] = []
        self._deferred = 0
        self._texts_count = [True]
        self._alike: Counter[tuple[str, str, str]] = Counter()
        self.found: list[Mutant] = []

    def visit(self, node: ast.AST) -> None:
        if _is_skipped(node):
            return
        for changed, after in self._changes(node):
            self._add(changed, after)
        if isinstance(node, (*FUNCTION, ast.ClassDef)):
            self._visit_scope(node)
        elif isinstance(node, ast.Lambda):
            self.visit(node.args)
            self._deferred += 1
            self.visit(node.body)
            self._deferred -= 1
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.visit(node.value)
        elif isinstance(node, ast.Raise) or _called(node) in NAMING:
            self._texts_count.append(False)
            self.generic_visit(node)
            self._texts_count.pop()
        elif isinstance(node, ast.Call) and _called(node) == "cast":
            for argument in node.args[1:]:
                self.visit(argument)
        elif isinstance(node, ast.arguments):
            for default in [*node.defaults, *(one for one in node.kw_defaults if one)]:
                self.visit(default)
        else:
            self.generic_visit(node)

    def _visit_scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._scopes.append(node.name)
        is_function = isinstance(node, FUNCTION)
        if not isinstance(node, ast.ClassDef):
            self.visit(node.args)
        self._deferred += is_function
        for statement in node.body:
            self.visit(statement)
        self._deferred -= is_function
        self._scopes.pop()

    def _add(self, node: ast.expr | ast.stmt, after: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        lines = self._lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        before = b"".join(lines).decode()
        scope = ".".join(self._scopes)
        self._alike[scope, before, after] += 1
        mutant = Mutant(
            self._path,
            scope,
            node.lineno,
            node.end_lineno,
            node.col_offset,
            node.end_col_offset,
            before,
            after,
            self._alike[scope, before, after],
            self._deferred > 0,
        )
        self.found.append(mutant)

    def _changes(self, node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
        """Yield replacements for a node or a part of it."""
        if isinstance(node, ast.stmt):
            yield from self._of_statement(node)
        elif isinstance(node, ast.comprehension):
            for condition in node.ifs:
                yield from _negated(condition)
        elif isinstance(node, ast.IfExp):
            yield from _negated(node.test)
        elif isinstance(node, ast.Constant):
            yield from self._of_constant(node)
        elif isinstance(node, ast.expr):
            yield from _of_expression(node)

    def _of_statement(self, node: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
        match node:
            case ast.If() | ast.While():
                yield from _negated(node.test)
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Delete():
                yield node, "pass"
            case ast.Break():
                yield node, "continue"
            case ast.Continue():
                yield node, "break"
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield value, "None"
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                if self._deferred and not isinstance(value, ast.Constant):
                    yield value, "None"
            case ast.AugAssign(op=operator) if type(operator) in COMPUTED:
                other = COMPUTED[type(operator)]()
                changed = ast.AugAssign(node.target, other, node.value)
                yield node, ast.unparse(changed)

    def _of_constant(self, node: ast.Constant) -> Iterator[tuple[ast.expr, str]]:
        value = node.value
        if isinstance(value, bool):
            yield node, str(not value)
        elif isinstance(value, (int, float)):
            yield node, repr(value + 1)
        elif isinstance(value, str) and self._texts_count[-1]:
            yield node, repr(value + "X")
        elif isinstance(value, bytes) and self._texts_count[-1]:
            yield node, repr(value + b"X")


def _of_expression(node: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    match node:
        case ast.Compare(ops=[operator]):
            other = COMPARED[type(operator)]()
            yield node, _inner(ast.Compare(node.left, [other], node.comparators))
        case ast.Compare(ops=operators):
            for number, operator in enumerate(operators):
                changed = [*operators]
                changed[number] = COMPARED[type(operator)]()
                yield node, _inner(ast.Compare(node.left, changed, node.comparators))
        case ast.BoolOp(op=ast.And()):
            yield node, _inner(ast.BoolOp(ast.Or(), node.values))
        case ast.BoolOp(op=ast.Or()):
            yield node, _inner(ast.BoolOp(ast.And(), node.values))
        case ast.BinOp(op=operator) if type(operator) in COMPUTED:
            yield node, _inner(ast.BinOp(node.left, COMPUTED[type(operator)](), node.right))
        case ast.UnaryOp(op=ast.Not()):
            yield node, _inner(node.operand)
        case ast.UnaryOp(op=ast.USub()):
            yield node, _inner(node.operand)
        case ast.Name(id=("min" | "max") as name):
            yield node, LARGEST[name]
        case _:
            return


def _negated(condition: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    """Return the negation of a condition that no other change inverts."""
    is_changed_elsewhere = isinstance(condition, (ast.Compare, ast.BoolOp, ast.Constant))
    if not is_changed_elsewhere and not isinstance(condition, ast.UnaryOp):
        yield condition, _inner(ast.UnaryOp(ast.Not(), condition))


def _inner(node: ast.expr) -> str:
    """Return an expression in parentheses if needed."""
    return f"({ast.unparse(node)})"


def _is_skipped(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return node.name in SKIPPED_FUNCTIONS
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in SKIPPED_NAMES
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="logger")))):
            return True
        case _:
            return False


def _called(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return None


def _one_line(text: str) -> str:
    return " ".join(text.split())
