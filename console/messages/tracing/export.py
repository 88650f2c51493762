"""Export of brokers' trace events as spans to a collector, with the OpenTelemetry SDK.

The console only imports this if TREBUCHET_OTLP_ENDPOINT is set. The export is one more viewer of
the bridge: it slows nothing down, and spans that it can't send are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from broker_core.isolation import isolated
from broker_core.message import names
from console.gateway.answers import WatchFilter
from console.messages.family.otlp import ERRORS, Context, context_of_ids, digest, operation_of
from console.messages.tracing.bridge import Viewer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from console.gateway.answers import TraceEvent
    from console.messages.tracing.bridge import TraceBridge

logger = logging.getLogger(__name__)

VIEWER = "otlp"
SPANS_MAX = 8_192
"""Spans queued for the collector; the oldest are dropped first."""
EXPORT_EVERY_MS = 1_000.0
ANSWER_SECONDS = 5.0
LAST_SECONDS = 2.0
"""How long the console waits for a collector when it stops."""
AT_ONCE = 100
"""Spans per iteration of the loop."""
NS_A_MS, NS_A_US = 1_000_000, 1_000
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
OF_TRANSACTIONS = frozenset({"withheld", "checked", "committed", "rolled_back"})
KINDS = {1: SpanKind.INTERNAL, 3: SpanKind.CLIENT, 4: SpanKind.PRODUCER, 5: SpanKind.CONSUMER}
RESOURCE = Resource({"service.name": "trebuchet"})
SCOPE = InstrumentationScope("trebuchet")


class Collector(NamedTuple):
    """The address for traces, and which ones to send."""

    endpoint: str
    headers: Mapping[str, str]
    topic: str | None
    sample: int


class Reporting(SpanExporter):
    """Logs once when the collector goes down, and once when it is back. SDK thread only."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            if not self._lost:
                logger.warning(
                    "trace collector unreachable, spans are lost endpoint=%s",
                    self._endpoint,
                )
            self._lost += len(spans)
        elif self._lost:
            logger.warning(
                "trace collector reachable again endpoint=%s spans_lost=%d",
                self._endpoint,
                self._lost,
            )
            self._lost = 0
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class OtlpExport:
    """Sends the events of one viewer to a collector. Event loop only."""

    def __init__(self, bridge: TraceBridge, collector: Collector) -> None:
        # The SDK would log every failure; one message is enough.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._bridge = bridge
        self._viewer = Viewer(VIEWER, is_page=False)
        self._viewer.filter = WatchFilter(topic=collector.topic, sample=collector.sample)
        exporter = OTLPSpanExporter(
            collector.endpoint, headers=dict(collector.headers), timeout=ANSWER_SECONDS
        )
        self._exporter = Reporting(exporter, collector.endpoint)
        self._processor = BatchSpanProcessor(self._exporter, SPANS_MAX, EXPORT_EVERY_MS)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start watching; requires a running loop."""
        self._bridge.join(self._viewer)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="otlp export")

    async def shutdown(self) -> None:
        """Stop watching, and send queued spans if the collector is up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._bridge.leave(self._viewer)
        last = asyncio.get_running_loop().run_in_executor(None, self._processor.shutdown)
        await asyncio.wait({last}, timeout=LAST_SECONDS)
        # Ends the retries of a thread that is still waiting for an answer.
        self._exporter.shutdown()

    async def _run(self) -> None:
        while True:
            await self._viewer.wait_for_events()
            for number, event in enumerate(self._viewer.drain(), 1):
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
                with isolated("exporting a span", event.get("stage")):
                    self._processor.on_end(span_of(event))
            await asyncio.sleep(self._bridge.batch_every_s)


def span_of(event: TraceEvent) -> ReadableSpan:
    """Return the span of an event, by the semantic conventions for messaging."""
    stage, topic = str(event["stage"]), str(event.get("topic", ""))
    context = context_of(event)
    own_id = digest(f"{context.trace_id} {identity_of(event)}", 16)
    is_own = stage == "stored"
    operation = operation_of(stage)
    end_ns = int(event["timeMs"]) * NS_A_MS
    begin_ns = end_ns - int(event.get("latencyUs") or 0) * NS_A_US
    parent_id = context.parent_id if is_own else own_id
    span_id = own_id if is_own else digest(f"{own_id} {event.get('seq')} {stage} {end_ns}", 16)
    is_consumers = operation.type in {"receive", "settle", "process"}
    return ReadableSpan(
        f"{operation.name} {topic}".strip(),
        context=reference(context.trace_id, span_id),
        parent=reference(context.trace_id, parent_id) if parent_id else None,
        resource=RESOURCE,
        attributes=dict(attributes_of(event, operation.name, operation.type)),
        events=list(steps_of(event, end_ns)),
        links=[Link(reference(context.trace_id, own_id))] if is_consumers else [],
        kind=KINDS[operation.kind],
        status=Status(StatusCode.ERROR if stage in ERRORS else StatusCode.UNSET),
        start_time=begin_ns,
        end_time=end_ns,
        instrumentation_scope=SCOPE,
    )


def identity_of(event: TraceEvent) -> str:
    """Return the ID shared by all stages of a message; other events are on their own."""
    return str(
        event.get("messageId")
        or event.get("uniqKey")
        or f"{event.get('brokerName')} {event.get('seq')} {event.get('atUs')}"
    )


def context_of(event: TraceEvent) -> Context:
    return context_of_ids(str(event.get("traceparent") or ""), identity_of(event))


def reference(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=SAMPLED)


def attributes_of(event: TraceEvent, operation: str, kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that are known."""
    topic, stage = str(event.get("topic", "")), str(event["stage"])
    keys = str(event.get("keys") or "").split()
    queue_id, broker_name = event.get("queueId"), event.get("brokerName", "")
    found: dict[str, Any] = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": f"{broker_name}:{queue_id}"
        if queue_id is not None
        else None,
        "messaging.message.id": event.get("uniqKey") or event.get("offsetMsgId"),
        "messaging.message.body.size": event.get("bodySize"),
        "messaging.client.id": event.get("clientId") or event.get("client"),
        "messaging.consumer.group.name": event.get("group"),
        "messaging.rocketmq.namespace": names.namespace_of(topic),
        "messaging.rocketmq.message.tag": event.get("tags"),
        "messaging.rocketmq.message.keys": keys,
        "messaging.rocketmq.message.type": message_type_of(event),
        "messaging.rocketmq.message.delay_time_level": event.get("delayLevel"),
        "error.type": (event.get("codeName") or stage) if stage in ERRORS else None,
        "trebuchet.stage": stage,
    }
    return ((name, value) for name, value in found.items() if value not in (None, "", []))


def message_type_of(event: TraceEvent) -> str | None:
    """Return the message type, if only one type has such a stage."""
    if event["stage"] in OF_TRANSACTIONS:
        return "transaction"
    # A message that a group sends back for retry is also deferred, whatever its type.
    return "delay" if event["stage"] == "deferred" and not event.get("group") else None


def steps_of(event: TraceEvent, end_ns: int) -> Iterator[Event]:
    """Yield the steps of a put as span events; the last one is its end."""
    steps: Mapping[str, int] = event.get("steps") or {}
    last_us = max(steps.values(), default=0)
    if event["stage"] == "refused":
        # The end isn't a step: all steps came before.
        last_us = int(event.get("latencyUs") or 0)
    for name, at_us in steps.items():
        yield Event(name, timestamp=end_ns - (last_us - at_us) * NS_A_US)
