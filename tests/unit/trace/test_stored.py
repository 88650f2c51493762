"""What watchers are told of messages that the broker stores again."""

from __future__ import annotations

import json

import pytest

from broker_core.message.message import MessageExt
from broker_core.trace.filter import TraceWatch
from broker_core.trace.stored import StoredTrace
from broker_core.trace.tracer import Tracer
from broker_core.trace.watch import Watcher
from tests.support.builders import HOST
from tests.support.clock import ManualClock

HALF = MessageExt(
    topic="RMQ_SYS_TRANS_HALF_TOPIC",
    queue_id=0,
    flag=0,
    queue_offset=0,
    commit_log_offset=0,
    sys_flag=0,
    born_timestamp=0,
    born_host="127.0.0.1:1",
    store_timestamp=0,
    store_host="127.0.0.1:1",
    reconsume_times=0,
    prepared_transaction_offset=0,
    body=b"",
    body_crc=0,
    properties={},
    store_size=0,
)


@pytest.mark.parametrize(("text", "times"), [("3", 3), ("²", None), ("x", None), ("", None)])
async def test_a_property_that_is_no_number_is_no_number_of_checks(
    text: str, times: int | None
) -> None:
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
