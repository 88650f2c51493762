"""Access: a cluster's addresses, the account to use, and the request settings."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from analytics.errors import ReportError
from broker_core.protocol.signature import Credentials

# The Java client's defaults (DefaultMQProducer, ClientConfig).
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
ROUTE_POLL_S = 30.0


@dataclass(frozen=True, slots=True)
class Access:
    """Connection settings for every process that uses the cluster; each process reads the files.

    A failed request is repeated up to `retries` times: first after `retry_interval_s`, then after
    twice as long each time. A route is used for `route_poll_s` before it is looked up again. A pull
    asks for at most `pull_batch_size` messages, if set. `send_timeout_s` replaces `timeout_s` for
    sends, if set.
    """

    namesrv_addr: tuple[str, ...]
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    secret_key_file: str = ""
    tls: bool = False
    tls_ca_file: str = ""
    tls_verify: bool = True
    timeout_s: float = 10.0
    retries: int = 3
    retry_interval_s: float = 1.0
    route_poll_s: float = ROUTE_POLL_S
    pull_batch_size: int | None = None
    send_timeout_s: float | None = None
    send_retries: int = 3
    message_bytes_max: int = MESSAGE_BYTES_MAX
    compress_over: int | None = None

    def credentials(self) -> Credentials | None:
        """Return the account, or None.

        Raises:
            ReportError: the secret key file isn't readable, or is empty.
        """
        if not self.access_key:
            return None
        secret = self.secret_key
        if self.secret_key_file:
            try:
                lines = Path(self.secret_key_file).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise ReportError(
                    f"The secret key can't be read from {self.secret_key_file}. It must be a "
                    "text file that this user can read, on every machine that reads messages."
                ) from error
            secret = lines[0].strip() if lines else ""
        if not secret:
            raise ReportError(f"The access key {self.access_key} has no secret key.")
        return Credentials(self.access_key, secret)

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context, None for plain connections.

        Raises:
            ReportError: the CA certificates aren't readable.
        """
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise ReportError(
                f"The CA certificates in {self.tls_ca_file} can't be read: {error}. Use a PEM file "
                "that this user can read."
            ) from error
        if not self.tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context
