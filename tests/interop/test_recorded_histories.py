"""A broker is killed under Java and Go clients, and the checker reads their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.faults import client_kills
from tools.faults.operations import (
    Cause,
    Consumed,
    Delivered,
    Ended,
    GaveBack,
    Happened,
    Kind,
    Replayed,
    Sent,
    Stored,
)

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.support.java_clients import JavaClients

KILLS = 5


@pytest.mark.fault
@pytest.mark.interop
def test_java_go_and_raw_clients_lose_nothing_when_their_broker_is_killed(
    tmp_path: Path, rng: random.Random, java_4: JavaClients, program: Path
) -> None:
    found = client_kills.run(tmp_path, KILLS, rng, (java_4, program))

    assert found.report.findings == [], str(found)
    assert found.kills == KILLS == sum(one == Cause.CRASH for one in causes(found))
    senders = {one.client.partition("-")[0] for one in found.history if isinstance(one, Sent)}
    assert {"java", "go"} < senders
    assert {one.kind for one in found.history if isinstance(one, Sent)} == set(Kind)
    decided = {one.id.partition("-")[0] for one in found.history if isinstance(one, Ended)}
    assert decided == {"java", "go"}
    # Some of each are decided by the broker's check.
    requests = {one.id for one in found.history if isinstance(one, Ended) and is_asked(one.id)}
    assert {each.partition("-")[0] for each in requests} == {"java", "go"}
    for kind in (Consumed, Ended, GaveBack, Replayed):
        assert any(isinstance(one, kind) for one in found.history), kind
    assert Cause.RESET in causes(found)
    for cause in ("returned", "reset", "replayed"):
        assert found.report.explained[cause] > 0, cause
    for one in found.history:
        match one:
            case Sent():
                assert one.wall_ms > 0, one
            case Delivered():
                assert one.wall_ms > 0, one
                assert one.stored_ms > 0, one
            case Stored():
                assert one.stored_ms > 0, one
            case _:
                pass


def is_asked(message_id: str) -> bool:
    """Whether a client leaves a half message to the broker's check: see its recorder."""
    return int(message_id.rpartition("-")[2]) % 150 == 23


def causes(found: client_kills.Findings) -> list[Cause]:
    return [one.cause for one in found.history if isinstance(one, Happened)]
