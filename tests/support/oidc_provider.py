"""A small OpenID Connect provider on loopback: discovery, RS256 tokens, PKCE.

Tests can falsify its answers, one at a time, to see which clients accept them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from joserfc import jwt

from console.lib.moment import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from joserfc.jwk import OctKey, RSAKey

CLIENT_ID, CLIENT_SECRET = "trebuchet", "a secret of the client"


class Provider:
    """The user who signs in, their claims, and the falsification to apply."""

    def __init__(self, port: int, key: RSAKey) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self.key = key
        self.person: dict[str, Any] = {"sub": "248289761001", "preferred_username": "grace"}
        self.bend: Callable[[dict[str, Any]], None] = lambda _claims: None
        self.signing_key: RSAKey | OctKey = key
        self.algorithm = "RS256"
        self.metadata: dict[str, Any] = {}
        self.broken = 0
        self._codes: dict[str, dict[str, str]] = {}

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
        } | self.metadata

    def authorized(self, address: str) -> str:
        """Return the redirect of the authorization request once the user agreed."""
        request = dict(parse_qsl(urlsplit(address).query))
        assert request["response_type"] == "code"
        assert request["client_id"] == CLIENT_ID
        assert request["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(8)
        self._codes[code] = request
        return f"{request['redirect_uri']}?{urlencode({'code': code, 'state': request['state']})}"

    def exchanged(self, form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        """Return the tokens for a code, once, or None if anything is wrong."""
        answer = self._codes.pop(form.get("code", ""), None)
        basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if answer is None or authorization != f"Basic {basic}":
            return None
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if challenge != answer["code_challenge"] or form["redirect_uri"] != answer["redirect_uri"]:
            return None
        now = now_ms() // 1_000
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "exp": now + 300,
            "iat": now,
            "nonce": answer["nonce"],
        } | self.person
        self.bend(claims)
        token = jwt.encode(
            {"alg": self.algorithm, "kid": self.key.kid},
            claims,
            self.signing_key,
            algorithms=[self.algorithm],
        )
        return {"access_token": "x", "token_type": "Bearer", "id_token": token}


class Answers(BaseHTTPRequestHandler):
    """The provider's endpoints."""

    def do_GET(self) -> None:
        provider: Provider = self.server.provider  # type: ignore[attr-defined]
        if provider.broken:
            self._send({}, provider.broken)
        elif self.path.endswith("/.well-known/openid-configuration"):
            self._send(provider.discovery())
        else:
            self._send({"keys": [provider.key.as_dict(private=False)]})

    def do_POST(self) -> None:
        provider: Provider = self.server.provider  # type: ignore[attr-defined]
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(text).items()}
        tokens = provider.exchanged(form, self.headers.get("Authorization", ""))
        self._send(tokens or {"error": "invalid_grant"}, 200 if tokens else 400)

    def _send(self, answer: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def running(key: RSAKey) -> Iterator[Provider]:
    """Run a provider while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    provider = Provider(server.server_port, key)
    server.provider = provider  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
