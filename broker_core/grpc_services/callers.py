"""Identify the caller of an RPC and check its permissions.

Source: proxy/grpc/interceptor/*.java, auth DefaultAuthenticationContextBuilder.java (5.3.3).
Differs: a signature is valid for 15 minutes; RocketMQ accepts it forever.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import AccessRefusedError, CallStatusError
from broker_core.grpc_messages.enums import Code
from broker_core.protocol.codes import LanguageCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.signature import ACCESS_KEY, SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.access.authorizer import Authorizer
    from broker_core.access.rules import Need
    from broker_core.grpc_services.remote_client import RemoteClient
    from broker_core.http2.call import Call

CLIENT_ID_CHARS_MAX = 255
LANGUAGES = {"GOLANG": "GO", "DOT_NET": "DOTNET", "NODEJS": "NODE_JS"}
KNOWN_LANGUAGES = frozenset(each.name for each in LanguageCode)
_AUTHORIZATION = re.compile(
    r"\S+\s+Credential=([^,\s/]*)[^,]*,\s*SignedHeaders=[^,]*,\s*Signature=([0-9a-fA-F]+)"
)


class Caller(NamedTuple):
    """The caller of an RPC."""

    call: Call
    client: RemoteClient
    language: str
    """In the form that remoting clients use."""
    version: str
    access_key: str | None
    signature: str

    @property
    def client_id(self) -> str:
        return self.client.client_id

    def request(
        self, code: int, ext_fields: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Return a request by this caller, whose permissions must have been checked."""
        command = RemotingCommand.request(code, ext_fields, body)
        command.language = self.language
        if self.access_key is not None:
            command.ext_fields[ACCESS_KEY] = self.access_key
        return command


def client_id_of(call: Call) -> str:
    """Return the client ID in a call's headers.

    Raises:
        CallStatusError: it is missing or too long.
    """
    client_id = call.headers.get("x-mq-client-id", "")
    if not client_id.strip():
        raise CallStatusError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
    if len(client_id) > CLIENT_ID_CHARS_MAX:
        raise CallStatusError(
            Code.BAD_REQUEST, f"client id is longer than {CLIENT_ID_CHARS_MAX} characters"
        )
    return client_id


def caller_of(call: Call, client: RemoteClient) -> Caller:
    """Return the caller, as described by the call's headers."""
    headers = call.headers
    language = headers.get("x-mq-language", "").upper()
    language = LANGUAGES.get(language, language)
    access_key, signature = None, ""
    if found := _AUTHORIZATION.fullmatch(headers.get("authorization", "")):
        access_key, signature = found[1] or None, found[2]
    return Caller(
        call,
        client,
        language if language in KNOWN_LANGUAGES else LanguageCode.OTHER.name,
        headers.get("x-mq-client-version", ""),
        access_key,
        signature,
    )


class CallAccess:
    """Checks permissions of calls. Event loop only; `authorizer` is None without access control."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer

    def require(self, caller: Caller, needs: Sequence[Need]) -> None:
        """Check that a caller is an account with these permissions.

        Raises:
            AccessRefusedError: it isn't an account, or a permission is missing.
        """
        if self._authorizer is None:
            return
        call = caller.call
        request = caller.request(0, {SIGNATURE: caller.signature})
        self._authorizer.authorize_dated(
            request,
            call.connection.remote_address,
            call.headers.get("x-mq-date-time", ""),
            needs,
        )
        if not call.connection.is_signed_in:
            call.connection.sign_in()

    def require_any(self, caller: Caller, choices: Sequence[Sequence[Need]]) -> None:
        """Check that a caller has the permissions of at least one choice.

        Raises:
            AccessRefusedError: it has the permissions of no choice.
        """
        refusal = None
        for needs in choices:
            try:
                self.require(caller, needs)
            except AccessRefusedError as error:
                refusal = error
            else:
                return
        if refusal is not None:
            raise refusal
