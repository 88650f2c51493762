"""A limit whose tests notice every change."""

from __future__ import annotations

LIMIT = 10


class Named:
    """An object with a name."""

    def __init__(self) -> None:
        self.name = "room"


class Room(Named):
    """The rest of a limit."""

    def __init__(self, used: int) -> None:
        super().__init__()
        self._used = used

    @property
    def left(self) -> int:
        """Return the remaining amount."""
        return LIMIT - self._used

    def has(self, target: int) -> bool:
        """Return whether this amount remains."""
        return target <= self.left
