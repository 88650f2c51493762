"""Watch events for messages that the broker stores again."""

from __future__ import annotations

import json

import pytest

from broker_core.trace.filter import TraceWatch
from broker_core.trace.stored import StoredTrace
from broker_core.trace.tracer import Tracer
from broker_core.trace.watch import Watcher
from tests.support.builders import HOST, a_message_ext
from tests.support.clock import ManualClock

HALF = a_message_ext("RMQ_SYS_TRANS_HALF_TOPIC")


@pytest.mark.parametrize(("text", "times"), [("3", 3), ("²", None), ("x", None), ("", None)])
async def test_a_non_numeric_property_is_not_a_check_count(text: str, times: int | None) -> None:
    tracer = Tracer(ManualClock())
    batches: list[bytes] = []

    def push(body: bytes) -> bool:
        batches.append(body)
        return True

    tracer.watch("c", TraceWatch(), Watcher(push))
    trace = StoredTrace(tracer, HOST, lambda _: None, lambda _: 0)
    HALF.properties = {"TRANSACTION_CHECK_TIMES": text, "REAL_TOPIC": "orders", "REAL_QID": text}

    trace.checked(HALF)
    tracer.push_all()
    await tracer.shutdown()

    (event,) = [event for body in batches for event in json.loads(body)["events"]]
    assert (event.get("checkTimes"), event.get("queueId")) == (times, times)
