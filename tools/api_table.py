"""The table of the API's operations in docs/api.md, with their scopes and permissions.

`python -m tools.api_table` prints it, `--write` puts it into the page. A test fails if the page's
table differs, so that a change of a token's permissions shows up in review.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tests.support.sources import ROOT

if TYPE_CHECKING:
    from console.api.operations import Operation

PAGE = ROOT / "docs" / "api.md"
BEGIN, END = "<!-- operations -->", "<!-- end of operations -->"
HEAD = "| operation | scopes | right |\n|---|---|---|\n"


def table() -> str:
    """Return the table, one operation a line, by address."""
    from console.api import schema
    from console.api.operations import OPERATIONS

    assert schema.AREAS  # the modules of all operations are imported
    ordered = sorted(OPERATIONS.values(), key=lambda each: (each.shown_path, each.method))
    return HEAD + "".join(f"{line_of(each)}\n" for each in ordered)


def line_of(operation: Operation) -> str:
    scopes = ", ".join(f"`{each}`" for each in operation.scopes)
    varying = f"; {operation.varying}" if operation.varying else ""
    right = operation.need.value + (f" on the {operation.named}" if operation.named else "")
    address = operation.shown_path.removeprefix("/api/v1")
    return f"| `{operation.method} {address}` | {scopes}{varying} | {right} |"


def parts_of(page: str) -> tuple[str, str, str]:
    """Return a page up to its table, the table, and the rest of the page."""
    before, _begin, rest = page.partition(f"{BEGIN}\n")
    found, _end, after = rest.partition(END)
    return before, found, after


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.support.settings")
    import django

    django.setup()
    if "--write" in sys.argv[1:]:
        before, _table, after = parts_of(PAGE.read_text())
        PAGE.write_text(f"{before}{BEGIN}\n{table()}{END}{after}")
    else:
        sys.stdout.write(table())


if __name__ == "__main__":
    main()
