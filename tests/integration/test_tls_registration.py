"""A broker as a client of a name server that accepts TLS only."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.broker import Broker
from broker_core.clock import SystemClock
from broker_core.config.tls import TlsConfig
from broker_core.errors import ConfigError
from broker_core.listening.tls import TlsGate
from broker_core.namesrv.namesrv import Entrance, NameServer
from broker_core.storage import FileStorage
from tests.support.broker import configuration_for, running_broker
from tests.support.certificates import certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def secured_name_server(directory: Path) -> AsyncIterator[NameServer]:
    """Run a name server that accepts only TLS, from clients with a certificate of its authority."""
    made, key = certificate(directory, "namesrv")
    known, _ = certificate(directory, "broker")
    tls = TlsConfig(
        mode="enforcing",
        cert_path=str(made),
        key_path=str(key),
        need_client_auth="require",
        auth_client=True,
        trust_cert_path=str(known),
    )
    clock, kv_configs = SystemClock(), directory / "kvConfig.json"
    server = NameServer(
        "127.0.0.1", 0, clock, FileStorage(), kv_configs, entrance=Entrance(tls=TlsGate(tls))
    )
    await server.start()
    yield server
    await server.shutdown()


def known(server: NameServer) -> list[str]:
    return list(server.routes.cluster_info().broker_addr_table)


async def test_a_broker_registers_with_its_certificate(tmp_path: Path) -> None:
    async with secured_name_server(tmp_path) as server:
        keys: dict[str, Any] = {
            "namesrvAddr": f"127.0.0.1:{server.port}",
            "useTLS": "true",
            "tls.client.certPath": tmp_path / "broker.pem",
            "tls.client.keyPath": tmp_path / "broker.key",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": tmp_path / "namesrv.pem",
        }
        async with running_broker(tmp_path, **keys):
            assert known(server) == ["broker-a"]
        assert known(server) == []


async def test_an_unverified_name_server_is_not_contacted(tmp_path: Path) -> None:
    async with secured_name_server(tmp_path) as server:
        keys: dict[str, Any] = {
            "namesrvAddr": f"127.0.0.1:{server.port}",
            "useTLS": "true",
            "tls.client.certPath": tmp_path / "broker.pem",
            "tls.client.keyPath": tmp_path / "broker.key",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": tmp_path / "broker.pem",
        }
        async with running_broker(tmp_path, **keys):
            assert known(server) == []


def test_a_missing_certificate_ends_the_start(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "namesrvAddr": "127.0.0.1:9",
        "useTLS": "true",
        "tls.client.certPath": tmp_path / "absent.pem",
    }

    with pytest.raises(ConfigError, match=r"^tls\.client\.certPath="):
        Broker(configuration_for(tmp_path, **keys))
