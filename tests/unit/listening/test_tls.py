from __future__ import annotations

import logging
import os
import ssl
from typing import TYPE_CHECKING

import pytest

from broker_core.config.tls import TlsConfig
from broker_core.errors import ConfigError
from broker_core.listening.tls import TlsGate, client_context
from tests.support.certificates import certificate

if TYPE_CHECKING:
    from pathlib import Path


def test_a_peer_is_not_looked_at_unless_that_is_asked_for() -> None:
    assert client_context(TlsConfig()).verify_mode is ssl.CERT_NONE
    assert client_context(TlsConfig(client_auth_server=True)).verify_mode is ssl.CERT_REQUIRED


def test_a_certificate_of_ones_own_is_shown(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "broker")

    client_context(TlsConfig(client_cert_path=str(made), client_key_path=str(key)))


def test_a_key_that_others_may_read_is_a_warning_at_the_start_and_when_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, key = certificate(tmp_path, "broker")
    client_context(TlsConfig(client_cert_path=str(made), client_key_path=str(key)))
    gate = TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)))
    assert not caplog.messages
    for number, mode in enumerate((0o640, 0o604), start=1):
        key.chmod(mode)
        # Another time is a changed file.
        os.utime(key, ns=(0, number))

        gate.reload_if_changed()

        warning = f"its mode {mode:04o} lets other users at them: chmod 600 {key}"
        assert [warning in text for text in warnings(caplog)] == [True]
        caplog.clear()
    client_context(TlsConfig(client_cert_path=str(made), client_key_path=str(key)))
    TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)))

    assert [f"chmod 600 {key}" in text for text in warnings(caplog)] == [True, True]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("client_cert_path", "tls.client.certPath"),
        ("client_key_path", "tls.client.certPath"),
        ("client_trust_cert_path", "tls.client.trustCertPath"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, field: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        client_context(TlsConfig(**{field: str(tmp_path / "absent.pem")}))  # type: ignore[arg-type]

    assert caught.value.key == key
