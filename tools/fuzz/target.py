"""Target: one format, given any bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

INPUT_BYTES_MAX = 4096
GROWN_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """One format's decoder, and what must be true of whatever it is given.

    `run` takes any bytes. It lets no error through but bugs: an error that the decoder declares is
    caught, and what is decoded is held against what the format promises.
    """

    name: str
    says: str
    run: Callable[[bytes], None]
    share: float = 1.0
    """Of all runs, beside the other targets: less where one takes long."""
    grown_bytes: int = GROWN_BYTES_MAX
    """How long an input may grow by repeating a piece of it: what grows with the square shows."""
    compares_arrays: bool = False
    """Whether what it runs compares arrays: atheris keeps for good what such a comparison returns
    (3.0.0), so its memory is judged at random alone."""
