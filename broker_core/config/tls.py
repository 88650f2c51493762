"""TlsConfig: TLS on the same ports.

The keys are those of tls.properties; the broker's file may contain them, too.

Source: remoting/netty/TlsSystemConfig.java, TlsHelper.java (4.9.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from broker_core.config.setting import setting

TLS_CONFIG_FILE = "/etc/rocketmq/tls.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """Which connections use TLS, and the certificates."""

    mode: Literal["disabled", "permissive", "enforcing"] = setting(
        "permissive", key="tls.server.mode"
    )
    config_file: str = setting(TLS_CONFIG_FILE, key="tls.config.file")
    test_mode_enable: bool = setting(default=True, key="tls.test.mode.enable")
    """Without a configured certificate, use a self-signed one, which clients can't verify."""
    cert_path: str = setting("", key="tls.server.certPath")
    key_path: str = setting("", key="tls.server.keyPath")
    key_password: str = setting("", key="tls.server.keyPassword", secret=True)
    need_client_auth: Literal["none", "optional", "require"] = setting(
        "none", key="tls.server.need.client.auth"
    )
    auth_client: bool = setting(default=False, key="tls.server.authClient")
    trust_cert_path: str = setting("", key="tls.server.trustCertPath")
    # The certificate and the requirements when the broker is the client: to name servers.
    use_tls: bool = setting(default=False, key="useTLS", aliases=("tls.enable",))
    """On by default if tls.server.mode=enforcing. The alias is a system property of RocketMQ.
    """
    client_cert_path: str = setting("", key="tls.client.certPath")
    client_key_path: str = setting("", key="tls.client.keyPath")
    client_key_password: str = setting("", key="tls.client.keyPassword", secret=True)
    client_auth_server: bool = setting(default=False, key="tls.client.authServer")
    client_trust_cert_path: str = setting("", key="tls.client.trustCertPath")
