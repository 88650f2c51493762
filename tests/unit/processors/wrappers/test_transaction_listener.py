from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.errors import AbortProcessError
from broker_core.extensions.failures import Failures
from broker_core.extensions.loading import ActiveExtension
from broker_core.extensions.transaction_listener import HalfMessage, Resolution
from broker_core.processors.wrappers.transaction_listener import ListenerAdapter
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage
from tests.support.transaction_store import CHECK_MAX, GROUP, Transacted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from broker_core.transaction.check import CheckedHalf

MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


class Listener:
    interface_version = 1

    def __init__(self, resolution: object = Resolution.PARK) -> None:
        self.resolution = resolution
        self.discarded: list[HalfMessage] = []
        self.checked: list[HalfMessage] = []
        self.check: Callable[[Callable[[], bool]], Any] = lambda ask: ask()

    def resolve_discard(self, half: HalfMessage) -> Any:
        self.discarded.append(half)
        if isinstance(self.resolution, Exception):
            raise self.resolution
        return self.resolution

    def send_check(self, half: HalfMessage, ask: Callable[[], bool]) -> Any:
        self.checked.append(half)
        return self.check(ask)


class Stage:
    """A store with transactions and a listener."""

    def __init__(self) -> None:
        self.listener = Listener()
        self.failures = Failures()
        self.requests: list[CheckedHalf] = []
        self.listened = ListenerAdapter(
            ActiveExtension("l", self.listener), self.failures, self._ask
        )
        self.ask = self.listened.ask
        self.transacted = Transacted(
            ManualClock(), FaultyStorage(), listened=lambda _: self.listened
        )

    def _ask(self, half: CheckedHalf) -> bool:
        self.requests.append(half)
        return True

    async def checked_out(self) -> None:
        """Check a half message until it's given up."""
        for _ in range(CHECK_MAX + 1):
            await self.transacted.round()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    await made.transacted.start()
    yield made
    await made.transacted.stop()


async def test_a_listener_commits_undecided_transactions(stage: Stage) -> None:
    stage.listener.resolution = Resolution.COMMIT
    stage.transacted.send(b"yes", UNIQ_KEY="U", TAGS="A")

    await stage.checked_out()

    assert stage.transacted.bodies() == [b"yes"]
    assert stage.transacted.bodies(MAX_TIME_TOPIC) == []
    (half,) = stage.listener.discarded
    assert (half.producer_group, half.topic, half.queue_id) == (GROUP, "T", 0)
    assert (half.uniq_key, half.body, half.check_times) == ("U", b"yes", CHECK_MAX)
    assert half.properties["TAGS"] == "A"


async def test_a_listener_rolls_back(stage: Stage) -> None:
    stage.listener.resolution = Resolution.ROLL_BACK
    stage.transacted.send()

    await stage.checked_out()

    assert stage.transacted.bodies() == stage.transacted.bodies(MAX_TIME_TOPIC) == []
    assert not stage.transacted.transactions.pending


@pytest.mark.parametrize(
    ("resolution", "failures"),
    [
        (Resolution.PARK, {}),
        (ValueError("broken"), {"l": 1}),
        (AbortProcessError(1, "no"), {"l": 1}),
        (None, {"l": 1}),
        ("commit", {"l": 1}),
    ],
)
async def test_anything_else_parks(stage: Stage, resolution: Any, failures: Any) -> None:
    stage.listener.resolution = resolution
    stage.transacted.send(b"parked")

    await stage.checked_out()

    assert stage.transacted.bodies(MAX_TIME_TOPIC) == [b"parked"]
    assert stage.failures.counts == failures


async def test_an_unstorable_decision_is_requested_again(stage: Stage) -> None:
    stage.listener.resolution = Resolution.COMMIT
    stage.transacted.send(b"late")
    for _ in range(CHECK_MAX):
        await stage.transacted.round()
    stage.transacted.store.availability.stop()

    await stage.transacted.round()
    stage.transacted.store.availability.start()
    await stage.transacted.round()

    assert len(stage.listener.discarded) == 2
    assert stage.transacted.bodies() == [b"late"]


async def test_a_listener_has_the_producer_checked(stage: Stage) -> None:
    stage.transacted.send(UNIQ_KEY="U")

    await stage.transacted.round()

    assert [half.uniq_key for half in stage.listener.checked] == ["U"]
    assert len(stage.requests) == 1


async def test_a_listener_may_do_nothing(stage: Stage) -> None:
    stage.listener.check = lambda _: False
    stage.transacted.send()

    await stage.transacted.round()

    assert stage.requests == []


@pytest.mark.parametrize("asks_first", [True, False])
@pytest.mark.parametrize("error", [ValueError("broken"), AbortProcessError(1, "no")])
async def test_a_broken_listener_does_not_prevent_one_check_of_the_producer(
    stage: Stage, error: Exception, asks_first: bool
) -> None:
    def check(ask: Callable[[], bool]) -> None:
        if asks_first:
            ask()
        raise error

    stage.listener.check = check
    stage.transacted.send()

    await stage.transacted.round()

    assert len(stage.requests) == 1
    assert stage.failures.counts == {"l": 1}
