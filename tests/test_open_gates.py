"""What docs/security.md calls open: each is a rule that does not hold yet.

A test here fails, and is marked so. Who makes it pass takes off the mark, and
`python -m tests.support.security_gates --write` says on the page that the gate holds.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

import pytest
import redis

from broker_core.config.tls import TlsConfig
from broker_core.listening.tls import TlsGate
from console.verdicts.rules import RULES
from tests.deploy import test_harden, test_redis_server
from tests.support.certificates import certificate

if TYPE_CHECKING:
    from pathlib import Path

# Fixtures are found by their names in this module.
server = test_redis_server.server
place = test_harden.place


@pytest.mark.xfail(reason="nothing looks for advisories about the locked versions")
def test_known_vulnerabilities_of_the_locked_versions_are_looked_for() -> None:
    importlib.import_module("deploy.advisories")


@pytest.mark.xfail(reason="the worker is the broker's user and may write to its store")
def test_the_worker_runs_as_another_user_than_the_broker(place: Path) -> None:
    units = test_harden.made(place)

    broker, worker = (test_harden.settings(units[name], "User") for name in ("broker", "worker"))
    assert broker != worker


@pytest.mark.fault
@pytest.mark.xfail(
    reason="worker, scheduler and console share one user of Redis, who may do everything there",
    raises=pytest.fail.Exception,
)
def test_no_process_may_do_in_redis_what_a_queue_does_not_need(server: tuple[Path, int]) -> None:
    client = redis.Redis(unix_socket_path=str(server[0]))

    with pytest.raises(redis.exceptions.NoPermissionError):
        client.flushall()


@pytest.mark.xfail(reason="nothing watches the last day of a certificate")
def test_a_certificate_that_ends_within_two_weeks_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, key = certificate(tmp_path, "broker")  # for a day

    TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)))

    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert any("ends" in each.getMessage() for each in warned)


@pytest.mark.xfail(reason="many refused requests are lines of the log, and no finding")
def test_many_refused_requests_are_a_finding() -> None:
    assert any("refused" in rule.name for rule in RULES)
