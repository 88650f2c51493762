"""Trials: run the tests of a line against a mutant of it, in a child of this process.

A mutant of a function body replaces the code of existing functions after all tests have been
loaded, which takes milliseconds. A mutant of import-time code is imported, and its tests loaded
again.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

import pytest

from tests.support.sources import ROOT
from tools.mutation import children
from tools.mutation.children import Ended, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    from tools.mutation.mutants import Mutant

OPTIONS = ("-qq", "-s", "--no-summary", "-p", "no:cacheprovider", "-p", "no:timeout")
"""Without pytest's capture, whose files all children would share."""
DEARER_MAX = 3
READING_SECONDS_MAX = 20
"""Extra CPU time for loading tests, besides a multiple of the tests' own time."""
SLOWER_MAX = 10
STALLED_SECONDS_MAX = 90
"""Limit by wall time, because tests also wait, and machines are busy."""


class Plan:
    """The tests for each mutant, the nearest first, and their time limit.

    Attributes:
        tests: by mutant.
        seconds: CPU time of the tests, by mutant.
    """

    def __init__(
        self, tests: Mapping[Mutant, Sequence[str]], seconds: Mapping[Mutant, float]
    ) -> None:
        self.tests = tests
        self.seconds = seconds

    def trial(self, mutant: Mutant, run: Callable[[], str | None]) -> Trial:
        seconds = self.seconds[mutant]
        return Trial(
            mutant,
            run,
            seconds * SLOWER_MAX + STALLED_SECONDS_MAX,
            int(seconds * DEARER_MAX + READING_SECONDS_MAX),
        )


def run_imported(
    mutants: Sequence[Mutant], plan: Plan, options: Sequence[str], together: int
) -> Iterator[Ended]:
    """Try mutants of import-time code; their modules must not have been imported here."""

    def trial(mutant: Mutant) -> Trial:
        def run() -> str | None:
            sys.meta_path.insert(0, _MutantFinder(mutant))
            failures = _Failures()
            code = pytest.main([*OPTIONS, "-x", *options, *plan.tests[mutant]], [failures])
            if code == pytest.ExitCode.OK:
                return None
            return failures.first or f"pytest ended with {code}"

        return plan.trial(mutant, run)

    yield from children.run_all(map(trial, mutants), together)


def run_replaced(
    mutants: Sequence[Mutant],
    plan: Plan,
    options: Sequence[str],
    together: int,
    on_ended: Callable[[Ended], None],
) -> int:
    """Load the tests here, then try mutants of function bodies; return pytest's exit code."""
    files = sorted({test.split("::")[0] for mutant in mutants for test in plan.tests[mutant]})
    server = _Server(mutants, plan, together, on_ended)
    return int(pytest.main([*OPTIONS, *options, *files], [server]))


class _Failures:
    """Records the name of the first failed test."""

    def __init__(self) -> None:
        self.first: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.first is None:
            self.first = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.first is None:
            self.first = report.nodeid


class _Server:
    """Runs no tests itself; each mutant's tests run in a child."""

    def __init__(
        self,
        mutants: Sequence[Mutant],
        plan: Plan,
        together: int,
        on_ended: Callable[[Ended], None],
    ) -> None:
        self._mutants = mutants
        self._plan = plan
        self._together = together
        self._on_ended = on_ended

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("couldn't load the tests")
        items = {item.nodeid: item for item in session.items}
        functions = imported_functions()
        # A collection in a child would write to all memory that it shares with the others.
        gc.freeze()
        trials = (self._trial(session, mutant, items, functions) for mutant in self._mutants)
        for ended in children.run_all(trials, self._together):
            self._on_ended(ended)
        return True

    def _trial(
        self,
        session: pytest.Session,
        mutant: Mutant,
        items: Mapping[str, pytest.Item],
        functions: Functions,
    ) -> Trial:
        chosen = [items[test] for test in self._plan.tests[mutant] if test in items]

        def run() -> str | None:
            replace(mutant, functions)
            failures = _Failures()
            session.config.pluginmanager.register(failures)
            for item, next_item in zip(chosen, [*chosen[1:], None], strict=True):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
                if failures.first is not None:
                    return failures.first
            return None

        return self._plan.trial(mutant, run)


Functions = dict[tuple[str, str, int], list[FunctionType]]
"""Imported functions, by file, name and first line of their code."""


def imported_functions() -> Functions:
    """Return all functions of this process, including decorated ones."""
    found: Functions = {}
    for function in gc.get_objects():
        if isinstance(function, FunctionType):
            found.setdefault(_key(function.__code__), []).append(function)
    return found


def replace(mutant: Mutant, functions: Functions) -> None:
    """Put a mutant of a function body into all functions made from it."""
    path = str(ROOT / mutant.path)
    source = (ROOT / mutant.path).read_text()
    old = _functions(compile(source, path, "exec", dont_inherit=True))
    new = _functions(compile(mutant.apply(source), path, "exec", dont_inherit=True))
    assert len(old) == len(new), mutant.name
    # The last function that begins above the place contains it.
    last = max(code.co_firstlineno for code in old if code.co_firstlineno <= mutant.line)
    count = 0
    for before, after in zip(old, new, strict=True):
        if before.co_firstlineno == last:
            if not after.co_freevars:
                # A removed super() call also removed the class from the closure.
                after = after.replace(co_freevars=before.co_freevars)
            for function in functions.get(_key(before), []):
                function.__code__ = after
                count += 1
    assert count, f"{mutant.name}: no test imports the module"


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _functions(code: CodeType) -> list[CodeType]:
    """Return the functions of modules and classes, in order, without nested functions."""
    found = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            is_body = constant.co_flags & 0x2 == 0  # CO_NEWLOCALS: only functions have it
            found += _functions(constant) if is_body else [constant]
    return found


class _MutantFinder(importlib.abc.MetaPathFinder):
    """Imports one module as its mutant, the others normally."""

    def __init__(self, mutant: Mutant) -> None:
        self._module = mutant.path.removesuffix(".py").replace("/", ".")
        self._mutant = mutant

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        loader = _MutantLoader(fullname, self._mutant)
        return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)


class _MutantLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, module: str, mutant: Mutant) -> None:
        super().__init__(module, str(ROOT / mutant.path))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        source = (ROOT / self._mutant.path).read_text()
        return compile(self._mutant.apply(source), self.path, "exec", dont_inherit=True)
