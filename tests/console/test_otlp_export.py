"""The export of traces: the spans that a collector receives, and behaviour without one."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from console.env import Environment
from console.messages.tracing import lifespan
from console.messages.tracing.export import SPANS_MAX, Collector, OtlpExport, span_of
from console.messages.tracing.lifespan import Lifespan, export_to_collector
from tests.console.tracing_fakes import TracedBroker, an_event
from tests.support.http_sink import HttpSink, http_sink
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "0A01020300002A9F18B4AAC257A10001"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
AT_MS = 1_795_000_000_000
PATIENCE_S = 60.0


@pytest.fixture
def sink() -> Iterator[HttpSink]:
    with http_sink() as made:
        yield made


def an_event_of(stage: str, **more: Any) -> dict[str, Any]:
    ids = {"messageId": KEY, "uniqKey": KEY, "offsetMsgId": "7F" * 16}
    return an_event(stage=stage, timeMs=str(AT_MS), brokerName="broker-a", **ids, **more)


def values(attributes: Any) -> dict[str, Any]:
    found = {}
    for each in attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        found[each.key] = [one.string_value for one in value.values] if "array" in kind else value
    return found


async def received(sink: HttpSink, count: int) -> list[Any]:
    """Wait until a collector has the given number of spans; return them."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            spans = [
                span
                for request in sink.received
                for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
            if len(spans) >= count:
                return spans
            await asyncio.sleep(0.02)  # the sink belongs to other threads


async def test_a_collector_receives_spans_named_by_the_conventions(
    sink: HttpSink,
) -> None:
    traceparent = f"00-{TRACE}-{PARENT}-01"
    bridge_of = TracedBroker()
    bridge = bridge_of.bridge(batch_every_s=0)
    collector = Collector(sink.url("/v1/traces"), {"authorization": "Bearer t"}, "ord*", 10)
    export = OtlpExport(bridge, collector)
    export.start()
    await bridge_of.until_watched()

    bridge_of.push(
        [
            an_event_of(
                "stored",
                traceparent=traceparent,
                latencyUs=3_000,
                keys="order-7 k2",
                tags="paid",
                bodySize=5,
                steps={"received": 0, "dispatched": 60},
            ),
            an_event_of("acknowledged", traceparent=traceparent, group="billing", clientId="c@1"),
            an_event_of("dead", traceparent=traceparent, group="billing"),
        ]
    )
    created, acknowledged, dead = await received(sink, 3)
    await export.shutdown()

    [result] = bridge_of.opened[0].subscriptions[0].values()
    assert (result.topic, result.sample) == ("ord*", 10)
    assert sink.received[0].path == "/v1/traces"
    assert sink.received[0].headers["authorization"] == "Bearer t"
    assert created.name == "create orders"
    assert (created.trace_id.hex(), created.parent_span_id.hex()) == (TRACE, PARENT)
    assert created.end_time_unix_nano == AT_MS * 1_000_000
    assert created.end_time_unix_nano - created.start_time_unix_nano == 3_000_000
    assert [each.name for each in created.events] == ["received", "dispatched"]
    assert values(created.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "broker-a:0",
        "messaging.message.id": KEY,
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ["order-7", "k2"],
        "trebuchet.stage": "stored",
    }
    assert acknowledged.name == "ack orders"
    assert acknowledged.trace_id == dead.trace_id == created.trace_id
    assert acknowledged.parent_span_id == created.span_id
    assert [link.span_id for link in acknowledged.links] == [created.span_id]
    settled = values(acknowledged.attributes)
    assert settled["messaging.consumer.group.name"] == "billing"
    assert settled["messaging.client.id"] == "c@1"
    assert values(dead.attributes)["error.type"] == "dead"


@pytest.mark.parametrize(
    ("stage", "more", "kind"),
    [
        ("withheld", {}, "transaction"),
        ("rolled_back", {}, "transaction"),
        ("deferred", {"delayLevel": 3}, "delay"),
        ("deferred", {"delayLevel": 3, "group": "billing"}, None),
        ("stored", {}, None),
    ],
)
def test_the_message_kind_is_shown_if_its_stage_reports_it(
    stage: str, more: dict[str, Any], kind: str | None
) -> None:
    span = span_of(an_event_of(stage, **more))

    assert (span.attributes or {}).get("messaging.rocketmq.message.type") == kind


def test_a_message_without_a_trace_starts_one_named_by_its_id() -> None:
    span = span_of(an_event_of("stored", traceparent="00-nonsense-01"))

    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == KEY.lower()
    assert span.parent is None


async def test_an_unreachable_collector_costs_a_bounded_queue_and_one_log_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = TracedBroker()
    bridge = brokers.bridge(batch_every_s=0)
    endpoint = f"http://127.0.0.1:{free_port()}/v1/traces"
    monkeypatch.setattr("console.messages.tracing.export.ANSWER_SECONDS", 0.2)
    monkeypatch.setattr("console.messages.tracing.export.LAST_SECONDS", 0.2)
    export = OtlpExport(bridge, Collector(endpoint, {}, None, 1))
    export.start()
    await brokers.until_watched()

    with caplog.at_level(logging.WARNING):
        brokers.push([an_event_of("stored", seq=str(number)) for number in range(SPANS_MAX)])
        async with asyncio.timeout(PATIENCE_S):
            while not caplog.records:  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # the SDK's thread says it
        brokers.push([an_event_of("stored")])
        # It also ends in time with pending spans that can't be sent.
        async with asyncio.timeout(PATIENCE_S):
            await export.shutdown()

    lines = [record.getMessage() for record in caplog.records]
    assert lines == [f"trace collector unreachable, spans are lost endpoint={endpoint}"]


async def test_a_returning_collector_receives_new_spans(
    sink: HttpSink, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = TracedBroker()
    bridge = brokers.bridge(batch_every_s=0)
    sink.status = 400
    export = OtlpExport(bridge, Collector(sink.url("/v1/traces"), {}, None, 1))
    export.start()
    await brokers.until_watched()

    brokers.push([an_event_of("stored")])
    await received(sink, 1)
    async with asyncio.timeout(PATIENCE_S):
        while not caplog.records:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # the SDK's thread says it
    sink.status = 200
    brokers.push([an_event_of("delivered")])
    await received(sink, 2)
    await export.shutdown()

    endpoint = sink.url("/v1/traces")
    assert [record.getMessage() for record in caplog.records] == [
        f"trace collector unreachable, spans are lost endpoint={endpoint}",
        f"trace collector reachable again endpoint={endpoint} spans_lost=1",
    ]


async def said_at_start(application: Lifespan) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []
    says = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, Any]:
        return {"type": next(says)}

    async def send(message: dict[str, Any]) -> None:
        heard.append(message)

    await application({"type": "lifespan"}, receive, send)
    return heard


async def test_without_a_collector_nothing_is_exported(settings: Any) -> None:
    settings.TREBUCHET_OTLP_ENDPOINT = ""
    brokers = TracedBroker()

    heard = await said_at_start(Lifespan(lambda: export_to_collector(brokers.bridge())))

    assert [each["type"] for each in heard] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert brokers.opened == []


async def test_a_console_without_the_sdk_names_the_package_to_install(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TREBUCHET_OTLP_ENDPOINT = "http://127.0.0.1:4318/v1/traces"

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=f"opentelemetry for {name}")

    monkeypatch.setattr(lifespan, "import_module", missing)

    [failed] = await said_at_start(Lifespan(lambda: export_to_collector(TracedBroker().bridge())))

    assert failed["type"] == "lifespan.startup.failed"
    assert "deploy/requirements-otlp.lock" in failed["message"]


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("", ""),
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://collector/own/path", "https://collector/own/path"),
    ],
)
def test_an_endpoint_without_a_path_gets_otlps(text: str, endpoint: str) -> None:
    assert Environment({"E": text}).http_url("E", "/v1/traces") == endpoint


def test_headers_are_pairs_and_invalid_ones_are_rejected_without_their_secret() -> None:
    assert Environment({"H": "a=1, b=x%20y"}).pairs("H") == {"a": "1", "b": "x y"}
    with pytest.raises(ImproperlyConfigured) as caught:
        Environment({"H": "a=1,secret"}).pairs("H")
    assert "secret" not in str(caught.value)
    with pytest.raises(ImproperlyConfigured) as caught:
        Environment({"E": "http://me:secret@collector"}).http_url("E", "/v1/traces")
    assert "secret" not in str(caught.value)
