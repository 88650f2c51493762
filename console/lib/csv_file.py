"""CSV for spreadsheets: no text can become a formula, whatever separator the spreadsheet uses.

Every CSV export of the console uses this module. Its texts come from messages, names and users, and
a spreadsheet evaluates a cell that begins with one of SIGNS. In many countries it splits cells at
semicolons rather than commas, so a formula can also begin in the middle of a text.
"""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Excel treats the full-width signs like the plain ones.
SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
SEPARATORS = (";", ",", "\\|", "\\t", "[\\r\\n\\v\\f\\x1c-\\x1e\\x85\\u2028\\u2029]")
# Characters that spreadsheets skip before a sign.
SKIPPED = "\\s\"'\\x00\\u200b-\\u200f\\u2060\\ufeff"
NUMBER = r"-?(?:[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|inf(?:inity)?)[\])}\"' ]*"
# A number is harmless if it fills the entire cell of the spreadsheet.
STARTS = (
    rf"^(?!{NUMBER}\Z)",
    *(rf"(?<={separator})(?! *{NUMBER}{separator})" for separator in SEPARATORS),
)
FORMULA_START = re.compile(f"(?:{'|'.join(STARTS)})(?=[{SKIPPED}]*[{SIGNS}])", re.IGNORECASE)
LEADING_BREAK = ("\t", "\r", "\n")


def csv_lines(head: Sequence[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """Yield a table as CSV lines, with a header; None is an empty cell."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow([safe_cell(name) for name in head])
    yield buffer.getvalue()
    for row in rows:
        buffer.seek(0)
        buffer.truncate()
        writer.writerow([safe_cell(value) for value in row])
        yield buffer.getvalue()


def safe_cell(value: Any) -> str:
    """Return a cell's text, with an apostrophe before each place where a formula may begin."""
    text = "" if value is None else str(value)
    safe = FORMULA_START.sub("'", text)
    return f"'{safe}" if safe.startswith(LEADING_BREAK) else safe
