"""The coverage of each module: statements and branches."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import coverage

from tests.support.sources import ROOT
from tools.mutation import footprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tools.mutation.footprint import Footprint


def report(prints: Iterable[Footprint], places: Sequence[str]) -> tuple[float, str]:
    """Return the percentage for all modules at or below the given paths, and a table of each."""
    measured = coverage.Coverage(data_file=None, branch=True, config_file=False)
    measured.set_option("report:precision", 1)
    measured.exclude("if TYPE_CHECKING:")
    measured.exclude(r"^\s*\.\.\.$")
    data = measured.get_data()
    for arcs in [footprint.imports(), *(one.arcs for one in prints)]:
        data.add_arcs({str(ROOT / path): found for path, found in arcs.items()})
    output = io.StringIO()
    modules = [str(ROOT / path) for path in footprint.modules(places)]
    percent = measured.report(modules, show_missing=True, skip_empty=True, file=output)
    return percent, output.getvalue().replace(f"{ROOT}/", "")
