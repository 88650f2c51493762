from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from broker_core.composition.lifecycle import Stage, shut_down_all, start_all
from broker_core.errors import RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable

    Log = list[str]


def failing() -> None:
    raise RemotingError("no")


def noted(log: Log, name: str, stop: Callable[[], None] | None = None) -> Stage:
    async def shutdown() -> None:
        log.append(f"{name} stops")
        if stop is not None:
            stop()

    return Stage(partial(log.append, f"{name} starts"), shutdown)


async def test_stages_start_forwards_and_stop_backwards() -> None:
    log: Log = []
    stages = [noted(log, "store"), noted(log, "port"), Stage(), noted(log, "registration")]

    await start_all(stages)
    await shut_down_all(stages)

    assert log == [
        "store starts",
        "port starts",
        "registration starts",
        "registration stops",
        "port stops",
        "store stops",
    ]


async def test_a_start_ends_at_the_first_stage_that_fails() -> None:
    log: Log = []

    with pytest.raises(RemotingError, match="no"):
        await start_all([noted(log, "store"), Stage(start=failing), noted(log, "registration")])

    assert log == ["store starts"]


async def test_a_stage_that_fails_to_stop_does_not_keep_others_from_stopping() -> None:
    log: Log = []

    with pytest.raises(RemotingError, match="no"):
        await shut_down_all([noted(log, "store"), noted(log, "port", failing), noted(log, "name")])

    assert log == ["name stops", "port stops", "store stops"]
