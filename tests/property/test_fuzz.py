"""Mutated frames of real clients end in an answer or a closed connection."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.processors.query import QueryProcessor
from tests.support.broker_process import ROOT
from tools.fuzz import guarded_frames
from tools.fuzz.frames import Fuzzer
from tools.fuzz.guarded_frames import GuardedFuzzer, Stream

if TYPE_CHECKING:
    import random

SECONDS = 3.0
RUN_SECONDS_MAX = 500
FOUND_SECONDS = 20.0


async def test_mutated_frames_do_no_harm(rng: random.Random) -> None:
    fuzzer = Fuzzer(rng.randrange(1 << 32), SECONDS)

    wrong = await fuzzer.run()

    assert wrong is None, f"{wrong}\npython -m tools.fuzz.frames continues from there"
    assert fuzzer.connections > 50


async def test_a_fault_is_detected(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a field that was never sent")

    monkeypatch.setattr(QueryProcessor, "query_message", broken)
    fuzzer = Fuzzer(rng.randrange(1 << 32), FOUND_SECONDS)

    wrong = await fuzzer.run()

    assert wrong is not None
    assert "a field that was never sent" in wrong


@pytest.mark.fault  # it takes as long as a hundred other tests, although nothing is killed
def test_200_000_mutated_frames_do_no_harm_to_a_broker_and_a_name_server_with_accounts(
    rng: random.Random,
) -> None:
    # In a separate process, whose memory and turns aren't shared.
    done = subprocess.run(
        [sys.executable, "-m", "tools.fuzz.guarded_frames", f"--seed={rng.randrange(1 << 32)}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4_000:]}"
    assert int(done.stdout.split()[2]) >= guarded_frames.FRAMES


def test_an_error_behind_the_accounts_is_detected(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a field that was never sent")

    monkeypatch.setattr(QueryProcessor, "query_message", broken)

    wrong = GuardedFuzzer(rng.randrange(1 << 32), guarded_frames.FRAMES).run()

    assert wrong is not None
    assert "a field that was never sent" in wrong


def test_a_long_turn_is_detected(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object) -> None:
        until = time.thread_time() + 2 * guarded_frames.TURN_S_MAX
        while time.thread_time() < until:
            pass

    monkeypatch.setattr(QueryProcessor, "query_message", slow)

    wrong = GuardedFuzzer(rng.randrange(1 << 32), guarded_frames.FRAMES).run()

    assert wrong is not None
    assert "a turn of the loop took" in wrong


def test_an_unanswered_request_is_found(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_of = guarded_frames.stream_of

    def with_one_that_is_lost(*arguments: Any) -> Stream:
        stream = stream_of(*arguments)
        return replace(stream, awaited=stream.awaited | {0x0BAD})

    monkeypatch.setattr(guarded_frames, "stream_of", with_one_that_is_lost)
    monkeypatch.setattr(guarded_frames, "END_SECONDS_MAX", 2.0)

    wrong = GuardedFuzzer(rng.randrange(1 << 32), guarded_frames.FRAMES).run()

    assert wrong is not None
    assert "not all requests were answered, and the connection stayed open" in wrong
