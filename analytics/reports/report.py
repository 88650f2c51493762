"""What a report is: the columns it reads, the frame it makes of them, the shape of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Report:
    """One report.

    `columns` are read from MESSAGES; `transform` makes `schema` of them; the result is sorted by
    `sorted_by`. `schema` has the columns `messages` and `bytes`, whose sums are the totals.
    """

    name: str
    summary: str
    columns: tuple[str, ...]
    transform: Callable[[DataFrame], DataFrame]
    schema: StructType
    sorted_by: tuple[str, ...]
