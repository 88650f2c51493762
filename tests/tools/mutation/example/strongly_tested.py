"""A limit whose tests notice every change."""

from __future__ import annotations

LIMIT = 10


class Named:
    """What has a name."""

    def __init__(self) -> None:
        self.name = "room"


class Room(Named):
    """What is left of a limit."""

    def __init__(self, used: int) -> None:
        super().__init__()
        self._used = used

    @property
    def left(self) -> int:
        """Return how much is left."""
        return LIMIT - self._used

    def has(self, wanted: int) -> bool:
        """Return whether there is so much."""
        return wanted <= self.left
