"""The export of traces by the web server as `deploy/up` runs it, from a broker to a collector."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.http_sink import HttpSink, http_sink
from tests.support.raw_remoting import SUCCESS, RawClient, create_topic
from tests.support.send_frames import fields_of, send
from tests.support.waiting import until
from tests.support.web_process import WebProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.fault

TOPIC, OTHER = "Orders", "Secrets"
KEYS = ("0A01020300002A9F18B4AAC257A10001", "0A01020300002A9F18B4AAC257A10002")
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
WAIT_SECONDS = 120.0
POLL_S = 0.2


def spans_in(sink: HttpSink) -> list[tuple[str, Any]]:
    """Return a collector's spans, each with the ID of its message."""
    return [
        (attribute.value.string_value, span)
        for request in list(sink.received)
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        for attribute in span.attributes
        if attribute.key == "messaging.message.id"
    ]


def put(client: RawClient, topic: str, key: str) -> None:
    properties = f"UNIQ_KEY\x01{key}\x02traceparent\x0100-{TRACE}-{PARENT}-01\x02"
    client.send_bytes(send(fields_of(topic, 0, properties), b"body", 1))
    assert client.read_answer().code == SUCCESS


def test_the_web_server_exports_spans_to_its_collector_even_after_a_kill(
    tmp_path: Path, broker_process: BrokerProcess
) -> None:
    for topic in (TOPIC, OTHER):
        create_topic(broker_process.port, topic)
    (tmp_path / "console").mkdir()
    with http_sink() as sink, RawClient(broker_process.port) as client:
        web = WebProcess(
            tmp_path / "console",
            TREBUCHET_NAMESRV=broker_process.namesrv,
            TREBUCHET_OTLP_ENDPOINT=sink.url(""),
            TREBUCHET_OTLP_HEADERS="authorization=Bearer%20t",
            TREBUCHET_OTLP_TOPIC="Ord*",
            TREBUCHET_OTLP_SAMPLE="1",
        )

        def is_handed_over(key: str) -> bool:
            # The server listens before it watches, so it misses earlier messages.
            put(client, OTHER, "X" + key[1:])
            put(client, TOPIC, key)
            return key in dict(spans_in(sink))

        try:
            web.start()
            for key in KEYS:
                if key != KEYS[0]:
                    web.kill()
                    web.launch()
                until(partial(is_handed_over, key), "a span", seconds=WAIT_SECONDS, every_s=POLL_S)
        finally:
            web.stop()
        spans = spans_in(sink)

    assert {key for key, _span in spans} == set(KEYS)
    assert {span.trace_id.hex() for _key, span in spans} == {TRACE}
    assert f"create {TOPIC}" in {span.name for _key, span in spans}
    assert {(each.path, each.headers["authorization"]) for each in sink.received} == {
        ("/v1/traces", "Bearer t")
    }
