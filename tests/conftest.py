"""Shared fixtures: the seed, our processes, optional programs."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from analytics import class_archive
from analytics.errors import ReportError
from tests.support import java_clients, spark_classes
from tests.support.broker_process import BrokerProcess
from tests.support.java_clients import JavaClients
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEED_VARIABLE = "TREBUCHET_TEST_SEED"
CLIENT_VERSIONS = ("4.9.7", "5.3.3")
# The archive that halves Spark's start time is created once for all tests.
os.environ.setdefault(
    class_archive.VARIABLE, str(Path(__file__).parent.parent / ".pytest_cache" / "spark-classes")
)
# An example has no time limit: the machine may be busy.
settings.register_profile(
    "busy machine", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")
_BUILT: dict[str, JavaClients] = {}
"""By version: several fixtures need them, and they take seconds to compile."""


def _seed() -> int:
    given = os.environ.get(SEED_VARIABLE)
    if given is None:
        given = os.environ[SEED_VARIABLE] = str(random.SystemRandom().randrange(1 << 32))
    return int(given)


def pytest_report_header() -> str:
    return f"seed: {_seed()} ({SEED_VARIABLE}={_seed()} replays it)"


@pytest.fixture(scope="session", autouse=True)
def shared_spark_classes(request: pytest.FixtureRequest) -> None:
    """The archive that each start of Spark maps, created before the first of them."""
    if any(item.get_closest_marker("spark") for item in request.session.items):
        # Without Java the tests themselves report it.
        with contextlib.suppress(ReportError):
            spark_classes.make()


@pytest.fixture
def rng() -> random.Random:
    """The only source of randomness in tests outside hypothesis."""
    return random.Random(_seed())


@pytest.fixture(scope="session")
def free_ports() -> Callable[[], int]:
    return free_port


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A running broker with a new store."""
    broker = BrokerProcess(tmp_path)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def chromium() -> str:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is missing (deploy/test all --install adds it)")
    return path


@pytest.fixture(scope="session", params=CLIENT_VERSIONS)
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> JavaClients:
    """Our Java programs with each version of the client."""
    return built(request.param, tmp_path_factory)


@pytest.fixture(scope="session")
def java_4(tmp_path_factory: pytest.TempPathFactory) -> JavaClients:
    """Our Java programs with the older client."""
    return built(CLIENT_VERSIONS[0], tmp_path_factory)


def require_java() -> None:
    """Skip, with the reason, if Java programs can't be compiled."""
    missing = java_clients.missing()
    if missing:
        pytest.skip(f"{', '.join(missing)} missing (deploy/test all --install adds it)")


def built(version: str, tmp_path_factory: pytest.TempPathFactory) -> JavaClients:
    require_java()
    if version in _BUILT:
        return _BUILT[version]
    clients = JavaClients(version, tmp_path_factory.mktemp(f"rocketmq-client-{version}"))
    try:
        clients.build()
    except subprocess.CalledProcessError as error:
        pytest.fail(f"The RocketMQ client {version} could not be made ready: {error}")
    _BUILT[version] = clients
    return clients
