from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from broker_core.config import TlsConfig
from broker_core.errors import ConfigError
from broker_core.remoting.tls import client_context
from tests.support.certificates import certificate

if TYPE_CHECKING:
    from pathlib import Path


def test_a_peer_is_not_looked_at_unless_that_is_asked_for() -> None:
    assert client_context(TlsConfig()).verify_mode is ssl.CERT_NONE
    assert client_context(TlsConfig(client_auth_server=True)).verify_mode is ssl.CERT_REQUIRED


def test_a_certificate_of_ones_own_is_shown(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "broker")

    client_context(TlsConfig(client_cert_path=str(made), client_key_path=str(key)))


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
