"""Rules that keep the code readable, for all of it, tests included.

A failure names file and line, and the fix. An exception needs a reason here, and an unneeded one
fails, too.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.support import native_constants, tidy, tidy_native
from tests.support.sources import ROOT, Source, native_sources, python_sources, templates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.support.tidy import Finding

    Rule = Callable[[Source], Iterator[Finding]]

# Rule, path and subject, with the reason for the exception.
NO_PUBLIC_SOURCE = (
    "DuckDB's public sources are given filters only as one expression of pyarrow's, which can't be "
    "applied to masked rows"
)
EXCEPTIONS = {
    ("long_functions", "broker_core/store/put.py", "MessagePut.put_message"): (
        "a call of a part costs each message 2 % of its put; a third of the lines is the names of "
        "a record's fields"
    ),
    ("wide_native_constructors", "broker_core/native/pull_state.pxi", "Span.__init__"): (
        "the twin of a dataclass, which generates the same parameters"
    ),
    ("restated_constants", "broker_core/native/frame_loop.pxi", "0x7FFFFFFF"): (
        "a stream identifier without its reserved bit"
    ),
    ("restated_constants", "broker_core/native/records.pyx", "0x7FFFFFFF"): (
        "the limit of Arrow's 32-bit offsets"
    ),
    ("restated_constants", "broker_core/native/scan_texts.pxi", "big32(at + 4)"): (
        "the second half of 64 bits"
    ),
    ("private_touches", "analytics/query/scan.py", "duckdb._sources.arrow"): NO_PUBLIC_SOURCE,
    ("private_touches", "analytics/query/conditions.py", "duckdb._sources.nodes"): NO_PUBLIC_SOURCE,
    ("private_touches", "tests/analytics/query/test_scan.py", "duckdb._sources.nodes"): (
        NO_PUBLIC_SOURCE
    ),
}

RULES: tuple[Rule, ...] = (
    tidy.banners,
    tidy.long_modules,
    tidy.long_functions,
    tidy.private_touches,
)
NATIVE_RULES: tuple[Rule, ...] = (
    tidy.long_modules,
    native_constants.restated_constants,
    tidy_native.long_native_functions,
    tidy_native.long_native_lines,
    tidy_native.native_banners,
    tidy_native.undocumented_native_modules,
    tidy_native.wide_native_constructors,
)


def hold(rule: str, findings: Iterable[Finding]) -> None:
    """Fail with findings without an exception, one a line, and with unneeded exceptions."""
    needed = set()
    wrong = []
    for finding in findings:
        key = (rule, finding.path, finding.subject)
        if key in EXCEPTIONS:
            needed.add(key)
        else:
            wrong.append(str(finding))
    wrong += [
        f"tests/test_tidy.py: EXCEPTIONS: {path}: {subject} no longer breaks a rule; remove it"
        for named, path, subject in EXCEPTIONS
        if named == rule and (named, path, subject) not in needed
    ]
    if wrong:
        pytest.fail("\n".join(["", *wrong]), pytrace=False)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_python_file_respects_the_limits(rule: Rule) -> None:
    found = [finding for source in python_sources() for finding in rule(source)]

    hold(rule.__name__, found)


@pytest.mark.parametrize("rule", NATIVE_RULES, ids=lambda rule: rule.__name__)
def test_every_compiled_file_respects_the_limits(rule: Rule) -> None:
    found = [finding for source in native_sources() for finding in rule(source)]

    hold(rule.__name__, found)


def test_no_template_line_is_too_long() -> None:
    found = [finding for path, lines in templates() for finding in tidy.long_lines(path, lines)]

    hold("long_lines", found)


def test_template_comments_end_on_their_line() -> None:
    """Django shows any other comment to people, as text."""
    wrong = [
        f"{path}:{number}"
        for path, lines in templates()
        for number, line in enumerate(lines, start=1)
        if line.count("{#") != line.count("#}")
    ]

    assert wrong == []


def test_every_package_describes_itself_and_nothing_else() -> None:
    wrong = []
    for folder in ("broker_core", "console", "analytics", "deploy", "tools"):
        for package in {file.parent for file in (ROOT / folder).rglob("*.py")}:
            where = package.relative_to(ROOT).as_posix()
            if package.name == "migrations":
                continue
            init = package / "__init__.py"
            tree = ast.parse(init.read_text()) if init.exists() else ast.Module([], [])
            if ast.get_docstring(tree) is None:
                wrong.append(f"{where}/__init__.py:1: say in a docstring what the package is")
            elif len(tree.body) > 1:
                line = tree.body[1].lineno
                wrong.append(f"{where}/__init__.py:{line}: code: move it to a module of its own")

    if wrong:
        pytest.fail("\n".join(["", *sorted(wrong)]), pytrace=False)


@pytest.mark.parametrize(
    ("rule", "text", "subject"),
    [
        (tidy.banners, "x = 1\n# -- life\n", "banner"),
        (tidy.banners, "# --- Places ---------\n", "banner"),
        (tidy.banners, "# Places ----\n", "banner"),
        (tidy.long_modules, "x = 1\n" * 601, "module"),
        (tidy.long_functions, "class A:\n    def f(self):\n" + "        x = 1\n" * 80, "A.f"),
        (native_constants.restated_constants, 'cdef str NAME = "UNIQ_KEY"\n', "UNIQ_KEY"),
        (native_constants.restated_constants, "    word = b'\\x02WAIT\\x01'\n", "WAIT"),
        (native_constants.restated_constants, '    put(b\',"tags":"\')\n', "tags"),
        (native_constants.restated_constants, "cdef enum:\n    CRC_MASK = 0x7F\n", "CRC_MASK"),
        (native_constants.restated_constants, "    if code == 310:\n", "310"),
        (native_constants.restated_constants, "    offset = big64(at + 28)\n", "big64(at + 28)"),
        (tidy_native.native_banners, "cdef int x\n    # -- life\n", "banner"),
        (tidy_native.long_native_lines, "x = 1" + " " * 96 + "\n", "line"),
        (tidy_native.undocumented_native_modules, "cdef int x = 1\n", "module"),
        (
            tidy_native.long_native_functions,
            "cdef class A:\n    cdef int f(self,\n               int a) except -1:\n"
            + "        x = 1\n" * 79,
            "A.f",
        ),
        (
            tidy_native.wide_native_constructors,
            "cdef class A:\n    def __init__(self, a, int b, c, d, e, f, g, h, i, j, k):\n"
            "        pass\n",
            "A.__init__",
        ),
        (tidy.private_touches, "from broker_core.store.flush import _flush\n", "_flush"),
        (tidy.private_touches, "import unittest._log\n", "unittest._log"),
        (tidy.private_touches, "monkeypatch.setattr(store, '_log', None)\n", "_log"),
        (tidy.private_touches, "patch('broker_core.store.flush._sync')\n", "_sync"),
        (
            tidy.private_touches,
            "from broker_core.service import Service\n"
            "class A(Service):\n    def f(self): self._tasks.clear()\n",
            "self._tasks",
        ),
    ],
)
def test_a_rule_finds_its_violations(rule: Rule, text: str, subject: str) -> None:
    found = list(rule(Source("broker_core/store/example.py", text)))

    assert [finding.subject.endswith(subject) for finding in found] == [True]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (tidy.banners, "# -1 is what an empty queue answers\nx = '# --- not a comment ---'\n"),
        (tidy.long_modules, "x = 1\n" * 600),
        (tidy.long_functions, "def f():\n" + "    x = 1\n" * 79),
        (tidy.private_touches, "class A:\n    def __init__(self): self._x = self._y = 1\n"),
        (
            tidy_native.long_native_functions,
            "cdef inline int f() except -1:\n" + "    x = 1\n" * 79 + "\n\ncdef int x\n",
        ),
        (tidy_native.undocumented_native_modules, '# cython: x=1\n"""Words."""\n'),
        (native_constants.restated_constants, '"""Read UNIQ_KEY of code 310."""  # "TAGS"\n'),
        (native_constants.restated_constants, "cdef enum:\n    HEAD_MAX = HEAD_SIZE + 20\n"),
        (native_constants.restated_constants, "    offset = big64(at + QUEUE_OFFSET_POSITION)\n"),
        (tidy_native.native_banners, "# -1 is what an empty queue answers\n"),
        (tidy.private_touches, "for _ in range(3): pass\n"),
        # QueueFiles, in another module of the same package, is designed as a base class.
        (
            tidy.private_touches,
            "from broker_core.store.queue_files import QueueFiles\n"
            "class A(QueueFiles):\n    def f(self): self._files.clear()\n",
        ),
    ],
)
def test_a_rule_leaves_the_rest_alone(rule: Rule, text: str) -> None:
    assert list(rule(Source("broker_core/store/example.py", text))) == []
