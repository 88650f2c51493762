"""Target: a format's decoder that can be run with any bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

INPUT_BYTES_MAX = 4096
GROWN_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """One format's decoder, and the properties that must hold for any input.

    `run` accepts any bytes and raises only for bugs: it catches errors that the decoder declares,
    and checks decoded values against the format's guarantees.
    """

    name: str
    says: str
    run: Callable[[bytes], None]
    share: float = 1.0
    """Share of all runs: less for slow targets."""
    grown_bytes: int = GROWN_BYTES_MAX
    """How long an input may grow by repetition, to reveal quadratic time."""
    compares_arrays: bool = False
    """Whether it compares arrays: atheris (3.0.0) leaks the results of such comparisons, so memory
    is only judged in random runs.
    """
