"""The signature of a request: HMAC-SHA1 of its values and body with the account's secret key.

The signed content is the values of all ext fields except the signature, sorted by key and joined
without separators, followed by the body. The values are the strings on the wire, never numbers that
were parsed and formatted again.

Source: acl/common/AclClientRPCHook.java, AclUtils.java, AclSigner.java (4.9.7), auth
DefaultAuthenticationContextBuilder.java (5.3.3).
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from broker_core.protocol.codes import V4_9_3

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""A field that clients up to 4.9.3 add after signing."""


class RequestSigner(Protocol):
    """Signs a client's requests for an account."""

    def sign(self, request: RemotingCommand) -> None:
        """Add the account and its signature to an otherwise complete request."""
        ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account; as a RequestSigner it signs like RocketMQ's clients."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def add_account_to(self, request: RemotingCommand) -> None:
        """Add the account without a signature."""
        ext_fields = {**request.ext_fields, ACCESS_KEY: self.access_key}
        if self.security_token is not None:
            ext_fields[SECURITY_TOKEN] = self.security_token
        request.ext_fields = ext_fields

    def sign(self, request: RemotingCommand) -> None:
        """Add the account and its signature to an otherwise complete request."""
        self.add_account_to(request)
        signature = signature_of(signed_content(request), self.secret_key)
        request.ext_fields = {**request.ext_fields, SIGNATURE: signature}


def signed_content(request: RemotingCommand) -> bytes:
    """Return the bytes that a request's signature covers."""
    fields = request.ext_fields
    keys = sorted(fields)
    if SIGNATURE in fields:
        keys.remove(SIGNATURE)
    if request.version <= V4_9_3 and UNIQUE_KEY_QUERY in fields:
        keys.remove(UNIQUE_KEY_QUERY)
    values = [fields[key] for key in keys]
    return "".join(values).encode("utf-8", "surrogatepass") + request.body


def signature_of(content: bytes, secret_key: str) -> str:
    """Return the signature in wire format."""
    return base64.b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()
