"""GET_BROKER_INTERNALS: threads, reads, latencies, damaged ranges of a running broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.stats.latency import FINE_MS
from broker_core.store.results import DamagedRange
from tests.support.client import Client, json_body

if TYPE_CHECKING:
    from broker_core.broker import Broker

LOG_FILE_BYTES = 1 << 20


async def test_a_broker_reports_its_running_work_and_how_long_sends_took(
    broker: Broker, client: Client
) -> None:
    for _ in range(3):
        await client.send("T")

    answer = await client.ask(RequestCode.GET_BROKER_INTERNALS)

    assert answer.code == ResponseCode.SUCCESS
    body = json_body(answer)
    main = next(each for each in body["threads"] if each["name"] == "MainThread")
    assert main["cpuMs"] > 0
    assert [each["cpuMs"] for each in body["threads"]] == sorted(
        (each["cpuMs"] for each in body["threads"]), reverse=True
    )
    assert body["memory"]["memoryBytes"] > body["memory"]["mappedResidentBytes"] > 0
    assert len(body["latencies"]["put"]) == len(FINE_MS) + 1
    assert sum(body["latencies"]["put"]) == sum(body["recent"]["put"]) == 3
    assert body["log"]["maxOffset"] > 0
    assert body["quarantine"] == []


async def test_a_damaged_range_is_reported_with_its_file_and_position(
    broker: Broker, client: Client
) -> None:
    size = broker.configuration.store.mapped_file_size_commit_log
    quarantine = broker.storage.store.files.quarantine
    quarantine.add(DamagedRange(2 * size + 100, 2 * size + 356, "its checksum is wrong"))

    (report,) = json_body(await client.ask(RequestCode.GET_BROKER_INTERNALS))["quarantine"]

    assert (report["file"], report["fileOffset"]) == (f"{2 * size:020d}", 100)
    assert (report["to"] - report["from"], report["reason"]) == (256, "its checksum is wrong")
