"""A Java client's own trace, next to ours on the message's page."""

from __future__ import annotations

import subprocess
import zlib
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.test import Client

    from tests.support.java_clients import JavaClients

pytestmark = [pytest.mark.interop, pytest.mark.django_db]

COUNT = 6
POLL_S = 0.25
GROUP = "traced-group"
TRACES = "RMQ_SYS_TRACE_TOPIC"
RECORD_END, FIELD_END = b"\x02", b"\x01"
PUB, SUB_BEFORE = b"Pub", b"SubBefore"
ZLIB = b"\x78"
AT, COST = 1, 10
"""Fields of Pub; the others begin with the time as well."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that stores traces."""
    process = BrokerProcess(tmp_path, traceTopicEnable="true")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def namesrv(broker: BrokerProcess) -> str:
    return broker.namesrv


def traced_records(broker: BrokerProcess) -> dict[str, dict[bytes, list[bytes]]]:
    """Return the clients' trace records of each message, as stored, by key and kind."""
    records: dict[str, dict[bytes, list[bytes]]] = {
        f"traced-{number}": {} for number in range(COUNT)
    }
    for each in raw_remoting.read_queue(broker.port, TRACES, 0):
        # Clients compress bodies longer than 4 KiB.
        body = zlib.decompress(each.body) if each.body.startswith(ZLIB) else each.body
        for raw in body.split(RECORD_END):
            fields = raw.split(FIELD_END)
            words = {part.decode() for field in fields for part in field.split(b" ")}
            for key in words & records.keys():
                records[key][fields[0]] = fields
    return records


def all_are_traced(broker: BrokerProcess, kinds: set[bytes]) -> bool:
    return all(kinds <= set(each) for each in traced_records(broker).values())


def test_a_clients_own_trace_and_ours_agree(
    java: JavaClients, broker: BrokerProcess, viewer: Client
) -> None:
    raw_remoting.create_topic(broker.port, "Traced", queues=1)
    # A 5.x consumer drops its traces of messages without a region, and our broker adds none.
    is_consumption_traced = java.version == "4.9.7"
    kinds = {PUB, SUB_BEFORE} if is_consumption_traced else {PUB}

    arguments = (broker.namesrv, "Traced", GROUP, COUNT)
    with java.start("TracedClients", *arguments, stdin=subprocess.PIPE) as clients:
        assert clients.stdin is not None
        assert clients.stdout is not None
        received = [clients.stdout.readline().split() for _ in range(COUNT)]
        until(lambda: all_are_traced(broker, kinds), "the traces to be stored", every_s=POLL_S)
        clients.stdin.close()

    traces = traced_records(broker)
    for _, key, queue_id, offset, store_ms in received:
        theirs = traces[key]
        address = reverse("family:message", args=["broker-a", int(queue_id), int(offset), "Traced"])
        answer = viewer.get(address)

        sent, *consumptions = answer.context["comparisons"]
        sent_ms = int(theirs[PUB][AT])
        assert (sent.low_ms, sent.lasts_ms) == (sent_ms, int(theirs[PUB][COST]))
        # Both clocks are this machine's, so they differ by a millisecond at most.
        assert (sent.ours_ms, sent.apart_ms) == (int(store_ms), 0)
        assert sent_ms <= int(store_ms) <= sent_ms + sent.lasts_ms
        stages = ["client_send", "sent", "stored", "acknowledged"]
        assert len(consumptions) == is_consumption_traced
        for consumed in consumptions:
            consumed_ms = int(theirs[SUB_BEFORE][AT])
            assert consumed.low_ms == consumed_ms
            assert (consumed.ours_ms, consumed.apart_ms) == (int(store_ms), 0)
            assert int(store_ms) <= consumed_ms
            stages.append("client_consume")
        page = answer.content.decode()
        for stage in stages:
            assert f'data-stage="{stage}"' in page
