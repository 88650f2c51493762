"""Header fields with their validity under RFC 9113, and the static table (RFC 7541, Appendix A)."""

from __future__ import annotations

import re

Field = tuple[str, str, int, str]
"""Name, value, size (RFC 7541, 4.1) and verdict: "" for an ordinary field, PSEUDO for a
pseudo-header
field, otherwise why a message with this field is malformed. The verdict is computed once and stored
because a field in a table is used many times.
"""

OVERHEAD = 32
"""Added to the size of each field (RFC 7541, 4.1)."""
PSEUDO = ":"

_NAME = re.compile(r"[!-9;-@\[-~]+").fullmatch
_VALUE = re.compile(r"(?![ \t])[^\0\r\n]*(?<![ \t])").fullmatch
_REQUEST_PSEUDO = frozenset({":method", ":scheme", ":path", ":authority"})
_OF_A_CONNECTION = frozenset(
    {"connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"}
)


def field(name: str, value: str) -> Field:
    """Return a request field with its verdict (RFC 9113, 8.2 and 8.3)."""
    return name, value, len(name) + len(value) + OVERHEAD, _verdict(name, value)


def _verdict(name: str, value: str) -> str:
    if _VALUE(value) is None:
        return "the value of a field begins or ends with a blank, or contains NUL, CR or LF"
    if name in _REQUEST_PSEUDO:
        return PSEUDO
    if name in _OF_A_CONNECTION:
        return f"{name} is a field of HTTP/1.1 connections"
    if name == "te" and value != "trailers":
        return "te is not trailers"
    if name[:1] == ":":
        return "a request has no such pseudo-header field"
    if _NAME(name) is None:
        return "the name of a field is empty or has an upper-case, blank or control character"
    return ""


def _static(*fields: tuple[str, str]) -> tuple[Field, ...]:
    return tuple(field(*each) for each in fields)


STATIC = (
    # Index 0 is unused.
    *_static(("", "")),
    *_static((":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/")),
    *_static((":path", "/index.html"), (":scheme", "http"), (":scheme", "https")),
    *(field(":status", status) for status in ("200", "204", "206", "304", "400", "404", "500")),
    *_static(("accept-charset", ""), ("accept-encoding", "gzip, deflate")),
    *(
        field(name, "")
        for name in (
            *("accept-language", "accept-ranges", "accept", "access-control-allow-origin", "age"),
            *("allow", "authorization", "cache-control", "content-disposition"),
            *("content-encoding", "content-language", "content-length", "content-location"),
            *("content-range", "content-type", "cookie", "date", "etag", "expect", "expires"),
            *("from", "host", "if-match", "if-modified-since", "if-none-match", "if-range"),
            *("if-unmodified-since", "last-modified", "link", "location", "max-forwards"),
            *("proxy-authenticate", "proxy-authorization", "range", "referer", "refresh"),
            *("retry-after", "server", "set-cookie", "strict-transport-security"),
            *("transfer-encoding", "user-agent", "vary", "via", "www-authenticate"),
        )
    ),
)
assert len(STATIC) == 62
