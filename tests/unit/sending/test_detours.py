from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.config.loading import build
from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import ResponseCode
from broker_core.sending.detours import Detours
from broker_core.store.results import PutMessageResult, PutMessageStatus
from tests.support.clock import ManualClock
from tests.support.delay_store import Delayed
from tests.support.faulty_storage import FaultyStorage
from tests.support.timer_run import TimerRun
from tests.support.transaction_store import Transacted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = bytes(8)


class Stage:
    """The services that forward a message, and the Detours that choose among them."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.delayed = Delayed(clock, FaultyStorage())
        self.timer_run = TimerRun(clock, FaultyStorage())
        self.transacted = Transacted(clock, FaultyStorage())

    async def start(self) -> None:
        await self.delayed.start()
        await self.timer_run.start()
        await self.transacted.start()

    async def stop(self) -> None:
        await self.delayed.stop()
        await self.timer_run.stop()
        await self.transacted.stop()

    def detours(self, **keys: str) -> Detours:
        configuration, _ = build({"brokerIP1": "10.0.0.1", **keys})
        return Detours(
            configuration.broker,
            self.delayed.levels,
            self.delayed.schedule,
            self.timer_run.timers,
            self.transacted.transactions,
        )


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    await made.start()
    yield made
    await made.stop()


async def test_a_message_without_a_delay_goes_straight(stage: Stage) -> None:
    table = {"KEYS": "k"}

    assert stage.detours().place_of(table, "T", 3) is None

    assert table == {"KEYS": "k"}


async def test_a_delayed_message_is_deferred(stage: Stage) -> None:
    table = {"DELAY": "2"}

    assert stage.detours().place_of(table, "T", 3) == ("SCHEDULE_TOPIC_XXXX", 1)

    assert table == {"DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "3"}


async def test_a_half_message_is_withheld_and_its_delay_dropped(stage: Stage) -> None:
    table = {"TRAN_MSG": "True", "DELAY": "2"}

    assert stage.detours().place_of(table, "T", 3) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)

    assert table == {"TRAN_MSG": "True", "REAL_TOPIC": "T", "REAL_QID": "3"}


async def test_a_timer_message_goes_to_the_timer_topic(stage: Stage) -> None:
    table = {"TIMER_DELAY_MS": "1500"}

    assert stage.detours().place_of(table, "T", 3) == ("rmq_sys_wheel_timer", 0)

    assert (table["REAL_TOPIC"], table["REAL_QID"]) == ("T", "3")
    assert int(table["TIMER_OUT_MS"]) == stage.timer_run.clock.now_ms() + 1_500


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
async def test_a_half_message_with_a_delivery_time_is_rejected(stage: Stage, name: str) -> None:
    with pytest.raises(
        RequestRefusedError, match=f"can't have a delivery time .{name}."
    ) as refused:
        stage.detours().place_of({"TRAN_MSG": "true", name: "1"}, "T", 3)

    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_delay_level_overrides_a_delivery_time(stage: Stage) -> None:
    table = {"DELAY": "2", "TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "x", "TIMER_DELIVER_MS": "7"}

    assert stage.detours().place_of(table, "T", 3) == ("SCHEDULE_TOPIC_XXXX", 1)

    assert table == {"DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "3"}


async def test_the_put_of_a_timer_message_adds_a_timer(stage: Stage) -> None:
    result = PutMessageResult(PutMessageStatus.PUT_OK, 0, 0)
    table = {"TIMER_DELAY_MS": "1500"}
    detours = stage.detours()
    place = detours.place_of(table, "T", 3)
    assert place is not None

    detours.note_put(place, result, table, b"", 1, HOST)

    assert stage.timer_run.timers.count == 1
    assert stage.delayed.deferred == []


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g"])
async def test_a_retry_of_a_committed_message_is_not_withheld(stage: Stage, topic: str) -> None:
    assert stage.detours().place_of({"TRAN_MSG": "true"}, topic, 0) is None


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ({"TRAN_MSG": "true"}, ResponseCode.NO_PERMISSION),
        ({"DELAY": "soon"}, ResponseCode.SYSTEM_ERROR),
        ({"TIMER_DELAY_SEC": "soon"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELAY_MS": "1.5"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELIVER_MS": "9" * 18}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_an_impossible_detour_is_rejected(
    stage: Stage, table: dict[str, str], code: ResponseCode
) -> None:
    detours = stage.detours(rejectTransactionMessage="true")

    with pytest.raises(RequestRefusedError) as refused:
        detours.place_of(table, "T", 0)

    assert refused.value.code == code
    assert refused.value.remark


async def test_a_deferred_put_reaches_the_schedule(stage: Stage) -> None:
    result = PutMessageResult(PutMessageStatus.PUT_OK, 0, 0)

    stage.detours().note_put(("SCHEDULE_TOPIC_XXXX", 1), result, {}, b"", 1, HOST)

    assert stage.delayed.deferred == [(1, result)]
    assert not stage.transacted.transactions.pending


async def test_a_withheld_put_is_reported_to_the_transactions(stage: Stage) -> None:
    result = PutMessageResult(PutMessageStatus.PUT_OK, 700, 7)

    stage.detours().note_put(("RMQ_SYS_TRANS_HALF_TOPIC", 0), result, {"PGROUP": "p"}, b"", 1, HOST)

    (half,) = stage.transacted.transactions.pending.values()
    assert (half.queue_offset, half.commit_log_offset) == (7, 700)
