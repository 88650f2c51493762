"""Tests of the gates that docs/security.md calls open: rules that don't hold yet.

Each test here fails and is marked as failing. When you make one pass, remove its mark and run
`python -m tools.security_gates --write`, which updates the page.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest
import redis

from tests.deploy import test_harden, test_redis_server

if TYPE_CHECKING:
    from pathlib import Path

# pytest finds fixtures by their names in this module.
server = test_redis_server.server
place = test_harden.place


@pytest.mark.xfail(reason="nothing checks the locked versions for advisories")
def test_the_locked_versions_are_checked_for_known_vulnerabilities() -> None:
    importlib.import_module("deploy.advisories")


@pytest.mark.xfail(reason="the worker runs as the broker's user and can write to its store")
def test_the_worker_runs_as_another_user_than_the_broker(place: Path) -> None:
    units = test_harden.made(place)

    broker, worker = (test_harden.settings(units[name], "User") for name in ("broker", "worker"))
    assert broker != worker


@pytest.mark.fault
@pytest.mark.xfail(
    reason="worker, scheduler and console share one Redis user with all permissions",
    raises=pytest.fail.Exception,
)
def test_no_process_may_do_in_redis_what_a_queue_does_not_need(server: tuple[Path, int]) -> None:
    client = redis.Redis(unix_socket_path=str(server[0]))

    with pytest.raises(redis.exceptions.NoPermissionError):
        client.flushall()
