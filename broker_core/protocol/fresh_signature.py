"""The fresh signature that Trebuchet's own clients add to RocketMQ's request signature.

RocketMQ's signature covers the joined values without their names, and neither the request code nor
the time: anyone who records a request can send it again, or as another request. This signature is
HMAC-SHA256, with the account's secret key, over

     0        20     24        28
    +--------+------+---------+--------------------------------------------+------------------+
    | domain | code | n fields| n times: key size, key, value size, value  | SHA-256 of body  |
    +--------+------+---------+--------------------------------------------+------------------+

in big endian, with sizes of four bytes and fields sorted by key, excluding the two signatures. A
nonce and the time are fields. Other brokers ignore all three fields, but RocketMQ's signature
covers them, so it is computed last.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from typing import TYPE_CHECKING

from broker_core.protocol.signature import SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.protocol.command import RemotingCommand
    from broker_core.protocol.signature import Credentials

FRESH_SIGNATURE = "trebuchetSignature"
FRESH_NONCE = "trebuchetNonce"
FRESH_TIME = "trebuchetTime"
"""Milliseconds since the epoch."""
NONCE_BYTES = 16

DOMAIN = b"trebuchet-request-1\0"
"""Domain separation: no other use of the secret key signs text with this prefix."""
assert len(DOMAIN) == 20
HEAD = struct.Struct(">20siI")
SIZE = struct.Struct(">I")


class FreshSigner:
    """Signs a client's requests both ways. `now_ms` returns the wall time.

    Each request gets its own nonce and time, so that a broker accepts it only once.
    """

    def __init__(
        self,
        credentials: Credentials,
        now_ms: Callable[[], int],
        new_nonce: Callable[[], str] = lambda: secrets.token_hex(NONCE_BYTES),
    ) -> None:
        self._credentials = credentials
        self._now_ms = now_ms
        self._new_nonce = new_nonce

    def sign(self, request: RemotingCommand) -> None:
        """Add the account and both signatures to an otherwise complete request."""
        self._credentials.add_account_to(request)
        request.ext_fields = {
            **request.ext_fields,
            FRESH_NONCE: self._new_nonce(),
            FRESH_TIME: str(self._now_ms()),
        }
        signature = fresh_signature_of(fresh_content(request), self._credentials.secret_key)
        request.ext_fields = {**request.ext_fields, FRESH_SIGNATURE: signature}
        self._credentials.sign(request)


def fresh_content(request: RemotingCommand) -> bytes:
    """Return the bytes that a request's fresh signature covers."""
    fields = request.ext_fields
    keys = sorted(key for key in fields if key not in (FRESH_SIGNATURE, SIGNATURE))
    parts = [HEAD.pack(DOMAIN, request.code, len(keys))]
    for key in keys:
        for text in (key, fields[key]):
            data = text.encode("utf-8", "surrogatepass")
            parts += [SIZE.pack(len(data)), data]
    parts.append(hashlib.sha256(request.body).digest())
    return b"".join(parts)


def fresh_signature_of(content: bytes, secret_key: str) -> str:
    """Return the fresh signature in wire format: 64 hexadecimal digits."""
    return hmac.digest(secret_key.encode(), content, "sha256").hex()
