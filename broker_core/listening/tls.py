"""Decide which connections use TLS, and with which certificate.

Source: remoting/netty/TlsHelper.java, NettyRemotingServer.java HandshakeHandler (4.9.7).
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.clock import SystemClock
from broker_core.config.exposure import exposure_of
from broker_core.errors import ConfigError
from broker_core.listening.certificate_expiry import first_expiry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.clock import Clock
    from broker_core.config.tls import TlsConfig

logger = logging.getLogger(__name__)

HANDSHAKE = 0x16
"""The first byte of a TLS connection."""
SELF_SIGNED_DAYS = 365
OPENSSL_SECONDS = 20
MS_PER_DAY = 86_400_000
WARNING_DAYS = 14
"""Number of days before a certificate expires when the daily warnings begin."""
VERIFY = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}


class TlsGate:
    """The certificate of a server. Event loop only.

    New connections use a changed certificate; open ones keep theirs. Without a configured
    certificate the gate creates a self-signed one on first use, if the test mode allows it: clients
    in their test mode, which is their default, accept it. `alpn` names the protocols that the
    server offers to clients that ask. The log warns for two weeks before a certificate expires.
    """

    def __init__(
        self, config: TlsConfig, alpn: Sequence[str] = (), clock: Clock | None = None
    ) -> None:
        """Load the certificate.

        Raises:
            ConfigError: the certificate is missing or invalid.
        """
        self._config = config
        self._alpn = alpn
        self._making: asyncio.Task[ssl.SSLContext | None] | None = None
        self._context: ssl.SSLContext | None = None
        self._clock = clock or SystemClock()
        self._end_ms: int | None = None
        self._warned_ms = 0
        self._stamp = self._read_stamp()
        if config.mode != "disabled" and config.cert_path:
            self._context = _context(config, alpn)
            self._read_end()
        elif config.mode == "enforcing" and not config.test_mode_enable:
            raise ConfigError(
                "tls.server.mode", "enforcing", "a certificate; set tls.server.certPath"
            )

    @property
    def takes_plain(self) -> bool:
        """Whether unencrypted connections are allowed."""
        return self._config.mode != "enforcing"

    @property
    def takes_tls(self) -> bool:
        """Whether encrypted connections are allowed."""
        return self._config.mode != "disabled" and (
            self._context is not None or self._config.test_mode_enable
        )

    async def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of a new connection, or None without a certificate."""
        if self._context is None and self.takes_tls:
            if self._making is None:
                self._making = asyncio.get_running_loop().create_task(
                    asyncio.to_thread(_self_signed_context, self._alpn),
                    name="self-signed certificate",
                )
            self._context = await asyncio.shield(self._making)
        return self._context

    def reload_if_changed(self) -> None:
        """Load the files again if one of them changed; damaged files change nothing."""
        if not self._config.cert_path:
            return
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._context = _context(self._config, self._alpn)
        except ConfigError as error:
            logger.warning("certificate not reloaded reason=%s", error)
        else:
            logger.info("certificate reloaded path=%s", self._config.cert_path)
            self._read_end()

    def _read_end(self) -> None:
        end = first_expiry(Path(self._config.cert_path))
        self._end_ms = None if end is None else int(end.timestamp() * 1000)
        self._warned_ms = 0
        self.warn_of_expiry()

    def warn_of_expiry(self) -> None:
        """Warn at most once a day if a certificate expires within two weeks or has expired."""
        now_ms = self._clock.now_ms()
        if self._end_ms is None or now_ms - self._warned_ms < MS_PER_DAY:
            return
        days = (self._end_ms - now_ms) // MS_PER_DAY
        if days >= WARNING_DAYS:
            return
        self._warned_ms = now_ms
        path, end = self._config.cert_path, datetime.fromtimestamp(self._end_ms / 1000, UTC)
        if days < 0:
            logger.warning(
                "certificate expired path=%s expired=%s",
                path,
                f"{end:%Y-%m-%dT%H:%M:%SZ}",
            )
        else:
            logger.warning(
                "certificate expires soon path=%s expires=%s days=%d",
                path,
                f"{end:%Y-%m-%dT%H:%M:%SZ}",
                days,
            )

    def _read_stamp(self) -> tuple[object, ...]:
        config = self._config
        stamps: list[object] = []
        for name in (config.cert_path, config.key_path, config.trust_cert_path):
            try:
                status = Path(name).stat() if name else None
            except OSError:
                status = None
            stamps.append(status and (status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(stamps)


def _empty_context(alpn: Sequence[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # RFC 9113, 9.2.1 forbids both.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def _context(config: TlsConfig, alpn: Sequence[str]) -> ssl.SSLContext:
    context = _empty_context(alpn)
    try:
        context.load_cert_chain(config.cert_path, config.key_path, config.key_password or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "tls.server.certPath", config.cert_path, f"a certificate with its key ({error})"
        ) from error
    _warn_of_exposed(config.key_path)
    if config.need_client_auth != "none":
        if not config.auth_client or not config.trust_cert_path:
            # Differs: RocketMQ then accepts any certificate, which protects nothing.
            raise ConfigError(
                "tls.server.need.client.auth",
                config.need_client_auth,
                "none, or tls.server.authClient=true with tls.server.trustCertPath",
            )
        try:
            context.load_verify_locations(config.trust_cert_path)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                "tls.server.trustCertPath", config.trust_cert_path, f"certificates ({error})"
            ) from error
        context.verify_mode = VERIFY[config.need_client_auth]
    return context


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """Return the TLS context of connections that the broker opens.

    As in RocketMQ, only tls.client.authServer makes it verify a peer's certificate, and it
    never checks the name in it: brokers and name servers are identified by address.

    Raises:
        ConfigError: a certificate of tls.client.* is invalid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED if config.client_auth_server else ssl.CERT_NONE
    try:
        if config.client_trust_cert_path:
            context.load_verify_locations(config.client_trust_cert_path)
        else:
            context.load_default_certs()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "tls.client.trustCertPath", config.client_trust_cert_path, f"certificates ({error})"
        ) from error
    if config.client_cert_path or config.client_key_path:
        try:
            context.load_cert_chain(
                config.client_cert_path,
                config.client_key_path or None,
                config.client_key_password or None,
            )
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                "tls.client.certPath",
                config.client_cert_path,
                f"a certificate with its key ({error})",
            ) from error
        _warn_of_exposed(config.client_key_path)
    return context


def _warn_of_exposed(key_path: str) -> None:
    warning = exposure_of(Path(key_path)) if key_path else None
    if warning is not None:
        logger.warning("%s", warning)


def _self_signed_context(alpn: Sequence[str]) -> ssl.SSLContext | None:
    """Create a certificate for the lifetime of this process; None if openssl is missing."""
    openssl = shutil.which("openssl")
    if openssl is None:
        logger.warning("no certificate, TLS is off")
        return None
    with tempfile.TemporaryDirectory() as directory:
        key, certificate = Path(directory, "key.pem"), Path(directory, "certificate.pem")
        subprocess.run(
            [
                *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=trebuchet"),
                *("-days", str(SELF_SIGNED_DAYS), "-keyout", str(key), "-out", str(certificate)),
            ],
            capture_output=True,
            timeout=OPENSSL_SECONDS,
            check=True,
        )
        context = _empty_context(alpn)
        context.load_cert_chain(certificate, key)
    logger.warning("self-signed certificate in use")
    return context
