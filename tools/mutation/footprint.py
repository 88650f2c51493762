"""Footprint: the lines and branches that each test executes, by coverage.py.

A test file's footprint is cached until the file, shared test code or the code changes; new files
run alone.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import coverage
import pytest

from tests.support.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

PACKAGES = ("broker_core/store", "broker_core/ha", "broker_core/transaction")
TESTS = (
    "tests/unit/store",
    "tests/unit/ha",
    "tests/unit/transaction",
    "tests/unit/delay",
    "tests/unit/verify",
    "tests/unit/composition",
    "tests/integration",
    "tests/property",
    "tests/golden",
)
"""Folders of tests that run these packages in their own process."""
EXAMPLE = "tests/tools/mutation/example"
"""Modules with known test results."""
MARKS = "not (spark or interop or fault or browser or callgrind or fuzz)"
KEPT = ROOT / ".pytest_cache" / "mutation"
Lines = dict[str, list[int]]
Arcs = dict[str, list[tuple[int, int]]]


@dataclass
class Test:
    """The lines that one test executes; `seconds` of CPU time."""

    seconds: float
    lines: Lines


@dataclass
class Footprint:
    """The lines and branches that the tests of one file execute.

    Attributes:
        tests: passed tests by pytest's names.
        failed: pytest's names of the others.
        arcs: branches by module: from line, to line.
    """

    tests: dict[str, Test] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    arcs: Arcs = field(default_factory=dict)


def modules(places: Sequence[str] = PACKAGES) -> list[str]:
    """Return the modules at or below the given paths, relative to the root."""
    found: list[Path] = []
    for place in places:
        path = ROOT / place
        if not path.exists():
            raise FileNotFoundError(f"{place}: no such module or package")
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [path.relative_to(ROOT).as_posix() for path in found]


def footprints(
    places: Sequence[str], options: Sequence[str], say: Callable[[str], None]
) -> dict[str, Footprint]:
    """Return the footprints by test file; run files without a fresh one in a child."""
    files = list(_test_files(places))
    stale = [file for file in files if not _kept(file).exists()]
    if stale:
        say(f"running {len(stale)} test files under coverage")
        pid = os.fork()
        if pid == 0:
            os._exit(_run(stale, options))
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) > pytest.ExitCode.TESTS_FAILED:
            raise RuntimeError("the tests didn't run under coverage; see above")
    return {file: _read(file) for file in files}


def imports() -> Arcs:
    """Return the branches that imports alone execute."""
    return _read(None).arcs


def _test_files(places: Sequence[str]) -> Iterator[str]:
    for place in places:
        path = ROOT / place
        for file in [path] if path.is_file() else sorted(path.rglob("test_*.py")):
            yield file.relative_to(ROOT).as_posix()


def _kept(file: str | None) -> Path:
    """Return the cache file of a footprint; None means that of the imports."""
    digest = hashlib.sha256(_shared())
    if file is not None:
        digest.update((ROOT / file).read_bytes())
    name = "imports" if file is None else file.replace("/", ".")
    return KEPT / f"{name}-{digest.hexdigest()[:16]}.json.gz"


_SHARED: list[bytes] = []


def _shared() -> bytes:
    """Return the digest of everything that all tests depend on."""
    if not _SHARED:
        digest = hashlib.sha256()
        shared = [*(ROOT / "broker_core").rglob("*.py"), *(ROOT / "tests/support").rglob("*.py")]
        shared += [path for path in (ROOT / "tests").rglob("*.py") if _is_shared(path)]
        for path in sorted(shared):
            digest.update(path.read_bytes())
        _SHARED.append(digest.digest())
    return _SHARED[0]


def _is_shared(path: Path) -> bool:
    """Whether a file is a conftest.py or another module next to tests."""
    place = path.relative_to(ROOT).as_posix()
    is_beside = place.startswith(TESTS) and not path.name.startswith("test_")
    return path.name == "conftest.py" or is_beside


def _read(file: str | None) -> Footprint:
    path = _kept(file)
    if not path.exists():
        return Footprint()
    table = json.loads(gzip.decompress(path.read_bytes()))
    tests = {name: Test(**test) for name, test in table["tests"].items()}
    arcs = {module: [(a, b) for a, b in found] for module, found in table["arcs"].items()}
    return Footprint(tests, table["failed"], arcs)


def _write(file: str | None, footprint: Footprint) -> None:
    path = _kept(file)
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob(path.name.rsplit("-", 1)[0] + "-*"):
        old.unlink()
    path.write_bytes(gzip.compress(json.dumps(asdict(footprint)).encode()))


def _run(files: Sequence[str], options: Sequence[str]) -> int:
    """Run test files under coverage, and store each one's footprint."""
    measured = coverage.Coverage(
        data_file=None,
        branch=True,
        config_file=False,
        include=[f"{one}/*" for one in (*PACKAGES, EXAMPLE)],
    )
    measured.start()
    contexts = _Contexts(measured)
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-m", MARKS, *options, *files], [contexts])
    measured.stop()
    data = measured.get_data()
    known = imports()
    _write(None, Footprint(arcs=_united([known, _arcs(data, [""])])))
    for file in files:
        names = [name for name in contexts.seconds if name.startswith(f"{file}::")]
        passed = [name for name in names if name not in contexts.failed]
        tests = {name: Test(contexts.seconds[name], _lines(data, name)) for name in passed}
        failed = [name for name in names if name in contexts.failed]
        _write(file, Footprint(tests, failed, _arcs(data, passed)))
    return int(code)


class _Contexts:
    """Sets coverage's context to the running test, and records its time."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._measured.switch_context(item.nodeid)
        before = time.process_time()
        result = yield
        self.seconds[item.nodeid] = time.process_time() - before
        self._measured.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)


def _lines(data: coverage.CoverageData, context: str) -> Lines:
    data.set_query_context(context)
    found = {_from_root(path): data.lines(path) or [] for path in data.measured_files()}
    return {path: sorted(lines) for path, lines in found.items() if lines}


def _arcs(data: coverage.CoverageData, contexts: Iterable[str]) -> Arcs:
    parts: list[Arcs] = []
    for context in contexts:
        data.set_query_context(context)
        parts.append({_from_root(path): data.arcs(path) or [] for path in data.measured_files()})
    return _united(parts)


def _united(parts: Iterable[Arcs]) -> Arcs:
    found: dict[str, set[tuple[int, int]]] = {}
    for part in parts:
        for path, arcs in part.items():
            found.setdefault(path, set()).update(arcs)
    return {path: sorted(arcs) for path, arcs in found.items() if arcs}


def _from_root(path: str) -> str:
    return path.removeprefix(f"{ROOT.as_posix()}/")
