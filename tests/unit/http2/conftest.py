"""Connections are tested with both engines: in Python, and compiled."""

from __future__ import annotations

import pytest

from broker_core.http2 import engine
from tests.support import http2_peer

CHOOSES = "chosen_engine"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat the tests of modules in which a peer talks to a connection."""
    if hasattr(metafunc.module, "Peer"):
        metafunc.fixturenames.append(CHOOSES)
        metafunc.parametrize(CHOOSES, ["python", "compiled"], indirect=True)


@pytest.fixture
def chosen_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use connections of one engine; without a compiler the other is skipped."""
    chosen = engine.PYTHON if request.param == "python" else http2_peer.COMPILED
    if chosen is None:
        pytest.skip("nothing compiled: python -m broker_core.native.build")
    monkeypatch.setattr(http2_peer, "ENGINE", chosen)
