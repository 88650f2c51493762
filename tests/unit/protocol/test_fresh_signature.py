from __future__ import annotations

import hashlib
import hmac
import struct

from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.fresh_signature import FreshSigner
from broker_core.protocol.signature import Credentials, signature_of, signed_content

SECRET = "12345678"
NOW_MS = 1_795_252_759_675
NONCE = "00112233445566778899aabbccddeeff"


def a_request(body: bytes = b"hello", **fields: str) -> RemotingCommand:
    return RemotingCommand.request(50, fields, body)


def signed(request: RemotingCommand, token: str | None = None) -> RemotingCommand:
    FreshSigner(Credentials("RocketMQ", SECRET, token), lambda: NOW_MS, lambda: NONCE).sign(request)
    return request


def test_it_covers_code_names_values_and_body_each_with_its_size() -> None:
    request = signed(a_request(topic="T"))

    def sized(text: bytes) -> bytes:
        return struct.pack(">I", len(text)) + text

    content = b"trebuchet-request-1\0" + struct.pack(">iI", 50, 4)
    for key, value in (
        (b"AccessKey", b"RocketMQ"),
        (b"topic", b"T"),
        (b"trebuchetNonce", NONCE.encode()),
        (b"trebuchetTime", str(NOW_MS).encode()),
    ):
        content += sized(key) + sized(value)
    content += hashlib.sha256(b"hello").digest()
    assert request.ext_fields["trebuchetSignature"] == (
        hmac.new(SECRET.encode(), content, "sha256").hexdigest()
    )


def test_rocketmqs_signature_is_made_last_and_covers_it() -> None:
    """Brokers without support for fresh signatures treat its fields like any other."""
    request = signed(a_request(topic="T"))

    fresh = request.ext_fields["trebuchetSignature"]
    assert signed_content(request) == f"RocketMQT{NONCE}{fresh}{NOW_MS}hello".encode()
    assert request.ext_fields["Signature"] == signature_of(signed_content(request), SECRET)


def test_a_security_token_is_covered_by_both() -> None:
    with_token = signed(a_request(), "token").ext_fields

    assert with_token["SecurityToken"] == "token"
    assert with_token["trebuchetSignature"] != signed(a_request()).ext_fields["trebuchetSignature"]


def test_each_signature_has_its_own_nonce() -> None:
    signer = FreshSigner(Credentials("RocketMQ", SECRET), lambda: NOW_MS)
    request = a_request()
    nonces = set()
    for _ in range(3):
        signer.sign(request)
        nonces.add(request.ext_fields["trebuchetNonce"])

    assert len(nonces) == 3
    assert {len(nonce) for nonce in nonces} == {32}
