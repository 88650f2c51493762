"""Crashes at a line of the store's code, and the files they leave."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_core import store

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tests.support.faulty_storage import FaultyStorage

STORE_CODE = str(Path(store.__file__).parent)


class Crash(NamedTuple):
    """When the process ends, in executed lines of the store's code from now on, and how."""

    line: int
    is_power_cut: bool
    seed: int
    kept: float
    """The share of unflushed data that survives a power cut."""


class Image(NamedTuple):
    """The files after a crash, and the end of their durable log."""

    storage: FaultyStorage
    is_power_cut: bool
    durable_to: int


class Biased(random.Random):
    """Random choice of sectors that keeps a given share of them instead of half."""

    def __init__(self, seed: int, kept: float) -> None:
        super().__init__(seed)
        self._kept = kept

    def random(self) -> float:
        return 0.0 if super().random() < self._kept else 1.0

    def getrandbits(self, k: int, /) -> int:
        return super().getrandbits(k)


class Tripwire:
    """Calls once, before the n-th line of the store's code is run."""

    def __init__(self, line: int, call: Callable[[], None]) -> None:
        self._left = line
        self._call = call
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        if self._left > 0:
            self._call()

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        if self._left > 0 and frame.f_code.co_filename.startswith(STORE_CODE):
            return self._line
        return None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line" and self._left > 0:
            self._left -= 1
            if self._left == 0:
                self._call()
        return self._line
