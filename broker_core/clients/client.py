"""A connected client as seen by the services: an address and a connection to close."""

from __future__ import annotations

from typing import Protocol


class ClientConnection(Protocol):
    """The part of a connection that this package needs; remoting's Connection implements it."""

    @property
    def remote_address(self) -> str:
        """ip:port of the peer."""
        ...

    def close(self) -> None: ...
