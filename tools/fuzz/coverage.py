"""Coverage: the steps from line to line of the broker's code that an input executes."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from tests.support.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from tools.fuzz.target import Target

    Step = tuple[str, int, int]

OURS = str(ROOT / "broker_core")


def steps_of(run: Callable[[bytes], None], data: bytes) -> set[Step]:
    """Return the steps of a run; an invalid input has no steps."""
    steps: set[Step] = set()

    def enter(frame: FrameType, _: str, __: object) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        if not name.startswith(OURS):
            return None
        before = 0

        def step(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
            nonlocal before
            if event == "line":
                steps.add((name, before, frame.f_lineno))
                before = frame.f_lineno
            return step

        return step

    traced = sys.gettrace()
    sys.settrace(enter)
    try:
        with contextlib.suppress(Exception):
            run(data)
    finally:
        sys.settrace(traced)
    return steps


def minimized(target: Target, inputs: Iterable[bytes]) -> list[bytes]:
    """Return the shortest inputs that cover all steps of the given inputs."""
    seen: set[Step] = set()
    chosen = []
    for data in sorted(set(inputs), key=lambda one: (len(one), one)):
        steps = steps_of(target.run, data)
        if not steps <= seen:
            seen |= steps
            chosen.append(data)
    return chosen
