"""Invalid bodies are rejected, whatever is wrong with them."""

from __future__ import annotations

import pytest

from broker_core.errors import RequestRefusedError
from broker_core.processors.json_body import read_json
from broker_core.trace.filter import TraceWatch


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"unknown":1}',
        b'{"topic":"\xff"}',
        b'{"\xff":1}',
        b'{"properties":{"\xff":"a"}}',
        b'{"a":' + b"[" * 100_000,
    ],
)
def test_an_unreadable_body_is_rejected(body: bytes) -> None:
    with pytest.raises(RequestRefusedError, match="the watch cannot be read"):
        read_json(body, TraceWatch, "the watch")


def test_an_empty_body_requests_the_defaults() -> None:
    assert read_json(b"", TraceWatch, "the watch") == TraceWatch()
