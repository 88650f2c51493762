"""ExtensionContext: the information that an extension gets on creation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

INTERFACE_VERSION = 1
"""The required value of an extension's `interface_version`; it changes when an interface does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionContext:
    """The broker that loads an extension, and the extension's settings.

    Attributes:
        name: the entry point's name, as used in the configuration.
        options: `extension.NAME.KEY=value` of the broker's configuration, by KEY. Only the
            extension interprets them; the broker neither checks nor shows their values.
        broker_addr: the broker's address for clients, "ip:port".
    """

    name: str
    options: Mapping[str, str]
    broker_name: str
    broker_cluster_name: str
    broker_addr: str
    region_id: str
