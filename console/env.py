"""Typed readers of the environment that refuse nonsense.

A reader that refuses a value names the variable, the value and what it expected. A secret may come
from a file: where NAME is not set, NAME_FILE names it.
"""

from __future__ import annotations

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
    """An address people write as host:port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Environment:
    """Readers over one mapping of variables; holds no other state."""

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

    def choice(self, name: str, words: Sequence[str], *, default: str) -> str:
        """Return one of these words."""
        word = self._variables.get(name, "").strip().lower() or default
        if word not in words:
            raise refused(name, word, ", ".join(words[:-1]) + f" or {words[-1]}")
        return word

    def mapping(self, name: str, words: Sequence[str], prefix: str) -> dict[str, tuple[str, ...]]:
        """Return the words of each key of pairs written as key=word, separated by semicolons.

        Each word is one of these, or any behind the prefix.
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
        """Return an absolute path; whether it exists is the caller's business."""
        return Path(self.text(name, str(default))).expanduser().resolve()

    def names(self, name: str) -> list[str]:
        """Return a comma-separated list, empty entries dropped."""
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
        """Return an http address, with this path where it names none; empty where it is not set."""
        text = self.text(name, "")
        if not text:
            return ""
        parts = urlsplit(text)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
            # It may carry a password by mistake.
            raise refused(name, f"{parts.scheme}://...", "http://host:port or https://host:port")
        return text if parts.path.strip("/") else f"{text.rstrip('/')}{path}"

    def pairs(self, name: str) -> dict[str, str]:
        """Return name=value pairs separated by commas; they are secrets, and may be in a file."""
        pairs = {}
        for part in (self.secret(name) or "").split(","):
            key, sign, value = (each.strip() for each in part.partition("="))
            if key and sign:
                pairs[key] = unquote(value)
            elif part.strip():
                raise refused(name, "...", "name=value, several separated by commas")
        return pairs

    def secret(self, name: str) -> str | None:
        """Return NAME, else the first line of the file that NAME_FILE names, else None."""
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
                f"{name}_FILE names {file_name}, which cannot be read: {error}."
            ) from error
        if not line:
            raise ImproperlyConfigured(f"{name}_FILE names {file_name}, whose first line is empty.")
        return line

    def issuer(self, name: str, *, client: str) -> str:
        """Return the address of an identity provider, which takes a client; empty: none."""
        issuer = self.text(name, "")
        if not issuer:
            return ""
        parts = urlsplit(issuer)
        is_here = parts.scheme == "http" and parts.hostname in {"127.0.0.1", "localhost", "::1"}
        if not parts.hostname or not (parts.scheme == "https" or is_here):
            raise refused(name, issuer, "https://…, or http:// on this machine")
        if not self.text(client, ""):
            raise ImproperlyConfigured(f"{name} is set, and {client} is not: both are needed.")
        return issuer

    def database(self, name: str, default_file: Path) -> dict[str, Any]:
        """Return Django's description of a database given as a URL."""
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
        # The URL may carry a password: name the scheme only.
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
            # Web, worker and beat share the file: readers must not block the writer, and a
            # transaction that will write takes its lock at the start instead of failing half way.
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


def refused(name: str, value: str, expected: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{name} is {value!r}; expected {expected}.")
