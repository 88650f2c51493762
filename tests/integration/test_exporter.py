"""rocketmq-exporter, used by 4.x dashboards, can read the runtime info.

Source: rocketmq-exporter, model/BrokerRuntimeStats.java (e1ab2dd): after one value that it can't
read, it reports nothing about the broker.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

from broker_core.protocol.codes import RequestCode
from tests.support.broker import running_broker
from tests.support.client import Client
from tests.support.waiting import POLL_S

if TYPE_CHECKING:
    from pathlib import Path

INTEGERS = (
    *("msgPutTotalTodayNow", "msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning"),
    *("msgGetTotalTodayNow", "msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning"),
    *("sendThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueHeadWaitTimeMills"),
    *("pullThreadPoolQueueHeadWaitTimeMills", "sendThreadPoolQueueSize", "pullThreadPoolQueueSize"),
    *("queryThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity"),
    *("queryThreadPoolQueueCapacity", "bootTimestamp", "commitLogMinOffset", "commitLogMaxOffset"),
    *("dispatchMaxBuffer", "dispatchBehindBytes", "brokerVersion", "pageCacheLockTimeMills"),
    *("getMessageEntireTimeMax", "putMessageEntireTimeMax", "putMessageTimesTotal"),
    *("startAcceptSendRequestTimeStamp", "earliestMessageTimeStamp", "putMessageSizeTotal"),
    "remainTransientStoreBufferNumbs",
)
DECIMALS = ("consumeQueueDiskRatio", "commitLogDiskRatio", "putMessageAverageSize")
RATES = ("putTps", "getMissTps", "getTotalTps", "getFoundTps")
TRANSFERRED = ("getTransferredTps", "getTransferedTps")
"""The names in 5.x and 4.9."""
LIMIT_S = 60.0
SIZE = re.compile(r"[\d.]+ (B|KiB|MiB|GiB|TiB)")
INTEGER = re.compile(r"-?\d{1,19}")


async def test_each_parsed_value_is_present_and_in_its_form(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.send("T", DELAY="1")
        await client.send("T")
        await client.pull("T")
        info: dict[str, str] = {}
        waiting: list[str] = []
        async with asyncio.timeout(LIMIT_S):
            # A level has its row from its first delivery on.
            while not waiting:
                answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
                info = json.loads(answer.body)["table"]
                waiting = [key for key in info if key.startswith("scheduleMessageOffset")]
                await asyncio.sleep(POLL_S)
        await client.shutdown()

    assert [key for key in INTEGERS if not INTEGER.fullmatch(info.get(key, ""))] == []
    for key in DECIMALS:
        float(info[key])
    transferred = next(key for key in TRANSFERRED if key in info)
    for key in (*RATES, transferred):
        assert len([float(each) for each in info[key].split(" ")]) == 3
    # It reads the third and fourth word, and the seventh and eighth, without their last letter.
    total, free = (info["commitLogDirCapacity"].split(" ")[at : at + 2] for at in (2, 6))
    for size in (total, free):
        assert SIZE.fullmatch(" ".join(size)[:-1]), info["commitLogDirCapacity"]
    float(info["remainHowManyDataToFlush"].split(" ")[0])
    # Java drops empty strings at the end.
    for bucket in info["putMessageDistributeTime"].rstrip().split(" "):
        assert int(bucket.split(":")[1]) >= 0
    for key in waiting:
        delivered, end = info[key].split(",")
        assert 0 <= int(delivered) <= int(end)
    assert {"runtime", "brokerVersionDesc"} <= info.keys()
