from __future__ import annotations

import logging
import os
import re
import ssl
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from broker_core.config.tls import TlsConfig
from broker_core.errors import ConfigError
from broker_core.http2.server import Http2Server
from broker_core.listening.certificate_expiry import first_expiry
from broker_core.listening.tls import TlsGate, client_context
from broker_core.remoting.server import RemotingServer
from tests.support.certificates import certificate
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 86_400_000


def test_a_peer_is_only_examined_on_request() -> None:
    assert client_context(TlsConfig()).verify_mode is ssl.CERT_NONE
    assert client_context(TlsConfig(client_auth_server=True)).verify_mode is ssl.CERT_REQUIRED


def test_a_custom_certificate_is_shown(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "broker")

    client_context(TlsConfig(client_cert_path=str(made), client_key_path=str(key)))


def test_a_key_readable_by_others_is_a_warning_at_the_start_and_when_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, key = certificate(tmp_path, "broker")
    client_context(TlsConfig(client_cert_path=str(made), client_key_path=str(key)))
    gate = TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)))
    assert not caplog.messages
    for number, mode in enumerate((0o640, 0o604), start=1):
        key.chmod(mode)
        # A different time means a changed file.
        os.utime(key, ns=(0, number))

        gate.reload_if_changed()

        warning = f"mode {mode:04o} gives other users access; run: chmod 600 {key}"
        assert [warning in text for text in warnings(caplog)] == [True]
        caplog.clear()
    client_context(TlsConfig(client_cert_path=str(made), client_key_path=str(key)))
    TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)))

    assert [f"chmod 600 {key}" in text for text in warnings(caplog)] == [True, True]


@pytest.mark.parametrize(
    ("days", "ahead_ms", "words"),
    [
        (15, 0, None),
        (
            14,
            1,
            "certificate expires soon path={path} expires={end} days=13",
        ),
        (30, 29 * DAY_MS + 1, "certificate expires soon .* days=0"),
        (30, 30 * DAY_MS + 1, "certificate expired path={path} expired={end}"),
        # After 2049, certificates use the time format with four-digit years.
        (9_000, 0, None),
        (9_000, 8_990 * DAY_MS, "certificate expires soon .* expires={end} days=10"),
    ],
)
def test_a_certificate_that_expires_within_two_weeks_is_a_warning(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    days: int,
    ahead_ms: int,
    words: str | None,
) -> None:
    made, key = certificate(tmp_path, "broker", days=days)
    end = end_by_openssl(made)
    clock = ManualClock(int(end.timestamp() * 1000) - days * DAY_MS + ahead_ms)

    TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)), clock=clock)

    if words is None:
        assert warnings(caplog) == []
    else:
        (warning,) = warnings(caplog)
        pattern = words.format(path=made, end=f"{end:%Y-%m-%dT%H:%M:%SZ}")
        assert re.fullmatch(pattern, warning)


def test_an_expiring_certificate_is_a_daily_warning_until_it_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, key = certificate(tmp_path, "broker", days=20)
    clock = ManualClock(int(end_by_openssl(made).timestamp() * 1000) - 20 * DAY_MS)
    gate = TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)), clock=clock)

    def hours(count: int) -> int:
        """Check the certificate every hour for some hours; return how many checks warned."""
        caplog.clear()
        for _ in range(count):
            clock.advance_ms(DAY_MS // 24)
            gate.reload_if_changed()
            gate.warn_of_expiry()
        return len(warnings(caplog))

    assert hours(6 * 24) == 0
    assert hours(3 * 24) == 3
    (tmp_path / "new").mkdir()
    newer, its_key = certificate(tmp_path / "new", "broker", days=400)
    newer.replace(made)
    its_key.replace(key)
    assert hours(24 * 30) == 0


@pytest.mark.parametrize("kind", [RemotingServer, Http2Server])
async def test_a_running_server_warns_when_two_weeks_are_left(
    kind: type[RemotingServer | Http2Server], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, key = certificate(tmp_path, "broker", days=20)
    second = 1_000
    clock = ManualClock(int(end_by_openssl(made).timestamp() * 1000) - 14 * DAY_MS - second)
    gate = TlsGate(TlsConfig(cert_path=str(made), key_path=str(key)), clock=clock)
    server = kind("server", {}, clock, tls=gate)
    clock.advance_ms(second + 1)
    await server.start("127.0.0.1", 0)
    before = warnings(caplog)

    clock.advance_ms(60 * second)

    await server.shutdown()
    assert before == []
    (warning,) = warnings(caplog)
    assert warning.startswith("certificate expires soon")


def test_a_chain_ends_at_its_first_certificate(tmp_path: Path) -> None:
    own, _ = certificate(tmp_path, "broker", days=300)
    above, _ = certificate(tmp_path, "above", days=10)
    chain = tmp_path / "chain.pem"
    chain.write_text(f"subject=broker\n{own.read_text()}\n{above.read_text()}")

    assert first_expiry(chain) == end_by_openssl(above)


@pytest.mark.parametrize("content", [b"", b"\xff", b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END"])
def test_an_invalid_certificate_has_no_end_date(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file.pem"
    file.write_bytes(content + b" CERTIFICATE-----")

    assert first_expiry(file) is None
    assert first_expiry(tmp_path / "absent.pem") is None


def end_by_openssl(path: Path) -> datetime:
    output = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-in", path],
        capture_output=True,
        text=True,
        check=True,
    )
    text = output.stdout.strip().removeprefix("notAfter=")
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)


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
def test_unreadable_data_is_reported_in_one_sentence(tmp_path: Path, field: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        client_context(TlsConfig(**{field: str(tmp_path / "absent.pem")}))  # type: ignore[arg-type]

    assert caught.value.key == key
