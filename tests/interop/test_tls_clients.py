"""Unmodified Java clients over TLS, on a port that accepts only TLS."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.java_clients import JavaClients

pytestmark = pytest.mark.interop

TOPIC = "secured"
COUNT = 20


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    made, key = directory / f"{name}.pem", directory / f"{name}.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(made)),
        ],
        capture_output=True,
        check=True,
    )
    return made, key


def exchange(broker: BrokerProcess, java: JavaClients) -> None:
    sent = java.send(broker.namesrv, TOPIC, modes="sync,batch", count=COUNT, tags="A", prefix="s")
    received = java.receive(broker.namesrv, TOPIC, f"{TOPIC}-group", count=2 * COUNT)

    assert len(sent) == 2 * COUNT
    assert sorted(line[0] for line in received) == sorted(line[0] for line in sent)


def test_a_client_that_trusts_any_certificate_is_served(
    tmp_path: Path, java: JavaClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides with defaults: no certificate is configured anywhere."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dtls.enable=true")
    broker = BrokerProcess(tmp_path, **{"tls.server.mode": "enforcing"})
    broker.start()
    try:
        exchange(broker, java)
    finally:
        broker.stop()


def test_client_and_broker_verify_each_others_certificates(
    tmp_path: Path, java_4: JavaClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, server_key = certificate(tmp_path, "server")
    client, client_key = certificate(tmp_path, "client")
    tls = tmp_path / "tls.properties"
    tls.write_text(
        "tls.test.mode.enable=false\n"
        f"tls.client.certPath={client}\ntls.client.keyPath={client_key}\n"
        f"tls.client.authServer=true\ntls.client.trustCertPath={server}\n"
        f"tls.server.certPath={server}\ntls.server.keyPath={server_key}\n"
        "tls.server.need.client.auth=require\ntls.server.authClient=true\n"
        f"tls.server.trustCertPath={client}\n"
    )
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dtls.enable=true -Dtls.config.file={tls}")
    # One file for both sides, as users write it.
    broker = BrokerProcess(
        tmp_path / "broker", **{"tls.config.file": tls, "tls.server.mode": "enforcing"}
    )
    broker.start()
    try:
        exchange(broker, java_4)
    finally:
        broker.stop()
