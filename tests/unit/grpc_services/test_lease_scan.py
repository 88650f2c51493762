"""The scan of renewed leases leaves the event loop free for other work."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from broker_core.grpc_services.leases import SCAN_S, SCANNED_AT_ONCE, LeaseService
from broker_core.grpc_services.receipt_handles import ReceiptHandle
from broker_core.protocol.receipt import Receipt
from tests.support.clock import ManualClock

TURNS_MAX = 100


async def test_many_leases_are_checked_in_portions() -> None:
    clock = ManualClock()
    engine: Any = SimpleNamespace(
        log=SimpleNamespace(is_read=True), leased_by=lambda *_key, is_ordered: []
    )
    unused: Any = None
    service = LeaseService(unused, unused, unused, unused, engine, clock)
    caller: Any = SimpleNamespace(client=object())
    for offset in range(5 * SCANNED_AT_ONCE):
        receipt = Receipt(0, 0, 60_000, 0, "0", "broker-a", 0, offset)
        service.renew(caller, "readers", "plain", ReceiptHandle(receipt, 0), attempt=1)
    service.start()
    await asyncio.sleep(0)

    clock.advance_ms(round(SCAN_S * 1000))
    counts = [service.renewed_count]
    while counts[-1] and len(counts) < TURNS_MAX:
        await asyncio.sleep(0)
        counts.append(service.renewed_count)
    await service.shutdown()

    assert counts[-1] == 0
    assert max(before - after for before, after in pairwise(counts)) <= SCANNED_AT_ONCE
