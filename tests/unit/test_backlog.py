from __future__ import annotations

import asyncio

from broker_core.backlog import Backlog


async def next_turn() -> None:
    await asyncio.sleep(0)


async def test_a_few_requests_are_served_immediately() -> None:
    served: list[int] = []

    def serve(thing: int) -> int:
        served.append(thing)
        return 1

    backlog = Backlog(serve, 3)
    for turn in range(3):
        for number in range(3):
            backlog.add(turn * 3 + number)
        assert served == list(range(turn * 3 + 3))
        await next_turn()


async def test_many_are_served_over_several_turns_in_order() -> None:
    served: list[int] = []

    def serve(thing: int) -> int:
        served.append(thing)
        return 2

    backlog = Backlog(serve, 4)
    for number in range(7):
        backlog.add(number)

    counts = []
    while len(backlog):
        counts.append(len(served))
        await next_turn()

    assert served == list(range(7))
    assert counts == [2, 4, 6]


async def test_waiting_requests_are_served_once_and_not_overtaken() -> None:
    served: list[str] = []

    def serve(thing: str) -> int:
        served.append(thing)
        return 1

    backlog = Backlog(serve, 1)
    for thing in ("a", "b", "c", "b", "c"):
        backlog.add(thing)
    await next_turn()
    backlog.add("d")
    while len(backlog):
        await next_turn()

    assert served == ["a", "b", "c", "d"]


async def test_work_that_creates_more_work_yields_to_the_loop() -> None:
    backlog: Backlog[int]
    served: list[int] = []

    def serve(thing: int) -> int:
        served.append(thing)
        if thing < 100:
            backlog.add(thing + 1)
        return 1

    backlog = Backlog(serve, 10)
    backlog.add(0)
    assert len(served) <= 10
    turns = 0
    while len(backlog):
        turns += 1
        await next_turn()

    assert served == list(range(101))
    assert turns >= 10


async def test_failing_work_does_not_keep_other_work_from_being_done() -> None:
    done: list[int] = []

    def serve(number: int) -> int:
        if number == 1:
            raise KeyError("of a bug")
        done.append(number)
        return 1

    backlog: Backlog[int] = Backlog(serve, at_once=1)
    for number in range(4):
        backlog.add(number)
    for _ in range(4):
        await asyncio.sleep(0)

    assert done == [0, 2, 3]
    assert len(backlog) == 0
