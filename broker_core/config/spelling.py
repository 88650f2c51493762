"""Suggests the known name closest to a misspelled name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

CHARACTERS_PER_TYPO = 4
"""Characters of a name for each allowed typo."""
TYPOS_MAX = 2
NAME_CHARACTERS_MAX = 100


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is one or two typos away, or None.

    A typo is a missing, added, replaced or swapped character. Case is ignored.
    """
    typos_max = min(TYPOS_MAX, len(name) // CHARACTERS_PER_TYPO)
    if len(name) > NAME_CHARACTERS_MAX:
        return None
    wanted = name.lower()
    found = [
        (typos, one)
        for one in known
        if abs(len(one) - len(name)) <= typos_max
        and (typos := _typos(wanted, one.lower())) <= typos_max
    ]
    return min(found)[1] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question to append to a sentence about an unknown name; empty without a guess."""
    found = nearest(name, known)
    return "" if found is None else f"; did you mean {found!r}?"


def _typos(a: str, b: str) -> int:
    """Return the optimal string alignment distance of two texts."""
    above: list[int] = []
    row = list(range(len(b) + 1))
    for i, of_a in enumerate(a, 1):
        above_that, above, row = above, row, [i]
        for j, of_b in enumerate(b, 1):
            typos = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (of_a != of_b))
            if i > 1 and j > 1 and of_a == b[j - 2] and a[i - 2] == of_b:
                typos = min(typos, above_that[j - 2] + 1)
            row.append(typos)
    return row[-1]
