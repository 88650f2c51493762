"""The identity that a broker registers with, and the name server's record of a live broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.message.data_version import DataVersion

BROKER_ID_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The registering broker. `broker_addr` is the "ip:port" that clients connect to."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str = ""
    epoch: int = 0
    """The epoch of a master; see `master_terms`."""


@dataclass(slots=True)
class LiveBroker:
    """A registered address.

    `owners` are the connections that registered it, oldest first; None means this process.
    """

    identity: BrokerIdentity
    data_version: DataVersion
    owners: tuple[object | None, ...]
    heard_at: float
