"""KnownAddresses: the brokers that the console may send signed requests to.

Name servers list broker addresses, and on many networks anyone can register a broker with them.
The console's account has administrator rights: a rogue broker that receives its signed requests
learns too much and could replay them to a real broker. So a console with an account only contacts
addresses that are in its settings or that an administrator has confirmed. A console without an
account has nothing to protect and contacts every address.

Confirmed addresses are kept in a file rather than in the database, because event loops and the
demo's process read them before each request.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from typing import TYPE_CHECKING

from django.conf import settings

from console.gateway.credentials import broker_signer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

logger = logging.getLogger(__name__)


class KnownAddresses:
    """Safe in any thread and process. The file at `path` is reread whenever it changes."""

    def __init__(self, configured: Iterable[str], path: Path, *, is_guarding: bool) -> None:
        """Set `is_guarding` to false if requests aren't signed; every address is then allowed."""
        self._configured = frozenset(configured)
        self._path = path
        self._is_guarding = is_guarding
        self._lock = threading.Lock()
        self._version: tuple[int, int, int] | None = None
        self._confirmed: frozenset[str] = frozenset()

    def __contains__(self, address: str) -> bool:
        return not self._is_guarding or self.is_named(address)

    def is_named(self, address: str) -> bool:
        """Return whether the settings or an administrator name an address."""
        if address in self._configured:
            return True
        with self._lock:
            self._read()
            return address in self._confirmed

    def confirm(self, address: str) -> None:
        """Allow requests to this address from now on.

        Raises:
            OSError: the file can't be written.
        """
        with self._lock:
            self._read()
            draft = self._path.with_suffix(f".{os.getpid()}.tmp")
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(sorted(self._confirmed | {address}), indent=2) + "\n")
            draft.replace(self._path)

    def _read(self) -> None:
        """Read the file if it has changed; an unreadable file confirms no addresses."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._version, self._confirmed = None, frozenset()
            return
        version = (status.st_mtime_ns, status.st_size, status.st_ino)
        if version == self._version:
            return
        try:
            found = json.loads(self._path.read_text())
            if not isinstance(found, list):
                raise ValueError("the content isn't a list")
        except (OSError, ValueError) as error:
            logger.warning("confirmed brokers unreadable path=%s error=%s", self._path, error)
            found = []
        self._version, self._confirmed = version, frozenset(map(str, found))


def known_addresses() -> KnownAddresses:
    """Return the confirmed addresses and those in the current settings."""
    return KnownAddresses(
        [*settings.TREBUCHET_NAMESRV, *settings.TREBUCHET_BROKERS],
        settings.TREBUCHET_CONFIRMED_BROKERS_FILE,
        is_guarding=broker_signer() is not None,
    )
