"""A connected client as the services see it: an address and a connection to close."""

from __future__ import annotations

from typing import Protocol


class ClientConnection(Protocol):
    """What this package needs of a connection; remoting's Connection has it."""

    @property
    def remote_address(self) -> str:
        """ip:port of the peer."""
        ...

    def close(self) -> None: ...
