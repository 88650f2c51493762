"""Typed readers of environment variables that reject invalid values.

The error for a rejected value names the variable, the value and the expected format. A secret can
be in a file: if NAME isn't set, NAME_FILE gives the path.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PORT_MAX = 65_535
TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})
SECRET_BYTES_MAX = 65_536
COUNT_MAX = 1_000_000


class HostPort(NamedTuple):
    """An address written as host:port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Environment:
    """Reads variables from a mapping."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables: Mapping[str, str] = os.environ if variables is None else variables

    def text(self, name: str, default: str) -> str:
        return self._variables.get(name, "").strip() or default

    def flag(self, name: str, *, default: bool) -> bool:
        word = self._variables.get(name, "").strip().lower()
        if not word:
            return default
        if word in TRUE_WORDS:
            return True
        if word in FALSE_WORDS:
            return False
        raise refused(name, word, "true or false")

    def count(self, name: str, default: int) -> int:
        """Return a whole number above zero."""
        text = self.text(name, str(default))
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(COUNT_MAX))
        if not is_number or not 0 < int(text) <= COUNT_MAX:
            raise refused(name, text, f"a whole number from 1 to {COUNT_MAX}")
        return int(text)

    def records(self, name: str, keys: Sequence[str]) -> list[dict[str, str]]:
        """Return a JSON list of objects that have these keys, with string values; [] by default."""
        text = self.text(name, "[]")
        try:
            found = json.loads(text)
            return [{key: str(one[key]) for key in keys} for one in found]
        except (ValueError, TypeError, KeyError):
            raise refused(name, text, f"a JSON list of objects with {', '.join(keys)}") from None

    def choice(self, name: str, words: Sequence[str], *, default: str) -> str:
        """Return one of these words."""
        word = self._variables.get(name, "").strip().lower() or default
        if word not in words:
            raise refused(name, word, ", ".join(words[:-1]) + f" or {words[-1]}")
        return word

    def mapping(self, name: str, words: Sequence[str], prefix: str) -> dict[str, tuple[str, ...]]:
        """Return the words for each key in pairs written as key=word, separated by semicolons.

        Each word is one of `words`, or any word that starts with the prefix.
        """
        found: dict[str, tuple[str, ...]] = {}
        for pair in (each.strip() for each in self.text(name, "").split(";")):
            if not pair:
                continue
            key, equals, word = (each.strip() for each in pair.rpartition("="))
            is_free = word.startswith(prefix) and word != prefix
            if not equals or not key or not (word in words or is_free):
                raise refused(name, pair, "key=" + " or key=".join([*words, f"{prefix}NAME"]))
            found[key] = (*found.get(key, ()), word)
        return found

    def directory(self, name: str, default: Path) -> Path:
        """Return an absolute path, which may not exist yet."""
        return Path(self.text(name, str(default))).expanduser().resolve()

    def names(self, name: str) -> list[str]:
        """Return a comma-separated list, without empty entries."""
        parts = (part.strip() for part in self._variables.get(name, "").split(","))
        return [part for part in parts if part]

    def host_port(self, name: str, default: str) -> HostPort:
        return parse_host_port(name, self.text(name, default))

    def host_ports(self, name: str, default: str) -> list[HostPort]:
        """Return addresses separated by semicolons, as RocketMQ writes name servers."""
        text = self.text(name, default)
        parts = [part.strip() for part in text.split(";") if part.strip()]
        if not parts:
            raise refused(name, text, "host:port, several separated by semicolons")
        return [parse_host_port(name, part) for part in parts]

    def http_url(self, name: str, path: str) -> str:
        """Return an HTTP URL, with `path` if it has no path, or "" if the variable isn't set."""
        text = self.text(name, "")
        if not text:
            return ""
        parts = urlsplit(text)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
            # The value might contain a password, so show only the scheme.
            raise refused(name, f"{parts.scheme}://...", "http://host:port or https://host:port")
        return text if parts.path.strip("/") else f"{text.rstrip('/')}{path}"

    def pairs(self, name: str) -> dict[str, str]:
        """Return name=value pairs separated by commas; they are secret, and can be in a file."""
        pairs = {}
        for part in (self.secret(name) or "").split(","):
            key, sign, value = (each.strip() for each in part.partition("="))
            if key and sign:
                pairs[key] = unquote(value)
            elif part.strip():
                raise refused(name, "...", "name=value, several separated by commas")
        return pairs

    def secret(self, name: str) -> str | None:
        """Return NAME, or the first line of the file at NAME_FILE, or None."""
        value = self._variables.get(name, "")
        if value:
            return value
        file_name = self._variables.get(f"{name}_FILE", "").strip()
        if not file_name:
            return None
        try:
            with Path(file_name).open(encoding="utf-8") as file:
                line = file.read(SECRET_BYTES_MAX).split("\n", 1)[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ImproperlyConfigured(
                f"{name}_FILE names {file_name}, which can't be read: {error}."
            ) from error
        if not line:
            raise ImproperlyConfigured(
                f"{name}_FILE names {file_name}, but its first line is empty."
            )
        return line

    def issuer(self, name: str, *, client: str) -> str:
        """Return the URL of an identity provider, or ""; the variable `client` must be set too."""
        issuer = self.text(name, "")
        if not issuer:
            return ""
        parts = urlsplit(issuer)
        is_here = parts.scheme == "http" and parts.hostname in {"127.0.0.1", "localhost", "::1"}
        if not parts.hostname or not (parts.scheme == "https" or is_here):
            raise refused(name, issuer, "https://…, or http:// on this machine")
        if not self.text(client, ""):
            raise ImproperlyConfigured(f"{name} is set, but {client} isn't. Set both.")
        return issuer

    def database(self, name: str, default_file: Path) -> dict[str, Any]:
        """Return Django's settings for a database URL."""
        url = self.secret(name)
        if url is None:
            return sqlite(default_file)
        parts = urlsplit(url)
        if parts.scheme == "sqlite":
            path = unquote(parts.path)
            # sqlite:///relative and sqlite:////absolute, as elsewhere.
            return sqlite(Path(path.removeprefix("/")).resolve())
        if parts.scheme in {"postgres", "postgresql"} and parts.path.strip("/"):
            return {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": unquote(parts.path.strip("/")),
                "USER": unquote(parts.username or ""),
                "PASSWORD": unquote(parts.password or "") or self.secret("PGPASSWORD") or "",
                "HOST": parts.hostname or "",
                "PORT": str(parts.port or ""),
                "CONN_MAX_AGE": 60,
                "CONN_HEALTH_CHECKS": True,
            }
        # The URL may contain a password, so show only the scheme.
        raise refused(name, f"{parts.scheme}://...", "sqlite:///file or postgres://user@host/name")


def parse_host_port(name: str, text: str) -> HostPort:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise refused(name, text, "host:port")
    if not 0 < int(port) <= PORT_MAX:
        raise refused(name, text, f"a port from 1 to {PORT_MAX}")
    return HostPort(host, int(port))


def sqlite(path: Path) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "OPTIONS": {
            "timeout": 20,
            # Web, worker and beat share the file. Readers must not block the writer, and a
            # transaction that writes takes its lock at the start instead of failing halfway.
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


def refused(name: str, value: str, expected: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{name} is {value!r}; expected {expected}.")
