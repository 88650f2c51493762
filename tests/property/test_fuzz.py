"""Frames of real clients, changed: each ends in an answer or a closed connection, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.processors.query import QueryProcessor
from tests.property.fuzz import Fuzzer

if TYPE_CHECKING:
    import random

    import pytest

SECONDS = 3.0
FOUND_SECONDS = 20.0


async def test_changed_frames_do_no_harm(rng: random.Random) -> None:
    fuzzer = Fuzzer(rng.randrange(1 << 32), SECONDS)

    wrong = await fuzzer.run()

    assert wrong is None, f"{wrong}\npython -m tests.property.fuzz goes on from there"
    assert fuzzer.connections > 50


async def test_a_fault_is_found(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a field that nobody sent")

    monkeypatch.setattr(QueryProcessor, "query_message", broken)
    fuzzer = Fuzzer(rng.randrange(1 << 32), FOUND_SECONDS)

    wrong = await fuzzer.run()

    assert wrong is not None
    assert "a field that nobody sent" in wrong
