"""ExtensionContext: what an extension learns when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

INTERFACE_VERSION = 1
"""What an extension's `interface_version` must be; it changes when an interface does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionContext:
    """The broker that an extension works for, and the extension's settings.

    Attributes:
        name: the entry point's name, by which the configuration names the extension.
        options: `extension.NAME.KEY=value` of the broker's configuration, by KEY. They are the
            extension's own; the broker neither checks nor shows their values.
        broker_addr: where clients reach the broker, "ip:port".
    """

    name: str
    options: Mapping[str, str]
    broker_name: str
    broker_cluster_name: str
    broker_addr: str
    region_id: str
