"""Decide which connection owns a broker's name and ID, address and cluster, without accounts.

The connection that registered them owns them while it is open and not silent.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

from broker_core.errors import RequestRefusedError
from broker_core.protocol.bodies.route import MASTER_ID
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.clock import Clock
    from broker_core.counted_log import CountedLog
    from broker_core.namesrv.identity import BrokerIdentity, LiveBroker
    from broker_core.namesrv.master_terms import MasterTerms
    from broker_core.protocol.bodies.route import BrokerData

logger = logging.getLogger(__name__)

BROKER_EXPIRED_S = 120.0
MASTER_SILENT_S = 65.0
"""After this silence, longer than any registration interval, a promoted slave can take the name."""
SET_MEMBERS_MAX = 64
"""Limit of addresses of one broker name; every route of its topics contains all of them."""


class Claims:
    """Refuses registrations of names, addresses and clusters of other brokers. Event loop only.

    `brokers` and `live` are the route tables, by name and by address.
    """

    def __init__(
        self,
        brokers: Mapping[str, BrokerData],
        live: Mapping[str, LiveBroker],
        master_terms: MasterTerms,
        clock: Clock,
        counted_log: CountedLog,
    ) -> None:
        self._brokers = brokers
        self._live = live
        self._master_terms = master_terms
        self._clock = clock
        self._counted_log = counted_log

    def require_free(self, identity: BrokerIdentity, owner: object | None) -> None:
        """Refuse a registration whose name or address belongs to another live broker."""
        address = identity.broker_addr
        data = self._brokers.get(identity.broker_name)
        if data is not None:
            self._require_cluster(data, identity, owner)
            is_new = identity.broker_id not in data.broker_addrs
            if is_new and len(data.broker_addrs) >= SET_MEMBERS_MAX:
                self.refuse(
                    identity, f"broker {data.broker_name} has {SET_MEMBERS_MAX} addresses already"
                )
        held = data.broker_addrs.get(identity.broker_id) if data is not None else None
        if (
            held is not None
            and held != address
            and not self._may_change(held, owner)
            and not self._may_succeed(identity, held, owner)
        ):
            self.refuse(
                identity,
                f"broker {identity.broker_name} with id {identity.broker_id} is registered from "
                f"{held}; another address can use its name once it has unregistered, closed its "
                f"connection, or been silent for {BROKER_EXPIRED_S:.0f} s",
            )
        live = self._live.get(address)
        if live is not None and not self._may_change(address, owner):
            registered = live.identity
            same = (registered.cluster_name, registered.broker_name, registered.broker_id)
            if same != (identity.cluster_name, identity.broker_name, identity.broker_id):
                self.refuse(
                    identity,
                    f"{address} is registered as broker {registered.broker_name} with id "
                    f"{registered.broker_id} of cluster {registered.cluster_name}",
                )

    def _require_cluster(
        self, data: BrokerData, identity: BrokerIdentity, owner: object | None
    ) -> None:
        """Refuse a different cluster for the name of a live broker.

        A master may move its set; slaves whose master has disconnected follow a new master.
        """
        if data.cluster == identity.cluster_name:
            return
        master = data.broker_addrs.get(MASTER_ID)
        if identity.broker_id == MASTER_ID:
            holders = [] if master is None else [master]
        else:
            holders = list(data.broker_addrs.values())
        for held in holders:
            if held != identity.broker_addr and not self._may_change(held, owner):
                self.refuse(
                    identity,
                    f"broker {data.broker_name} belongs to cluster {data.cluster}, since {held} "
                    f"registered it there; set brokerClusterName={data.cluster}",
                )

    def _may_succeed(self, identity: BrokerIdentity, held: str, owner: object | None) -> bool:
        """Return whether this is a promoted slave that replaces a silent master."""
        own = self._live.get(identity.broker_addr)
        return (
            identity.broker_id == MASTER_ID
            and self._master_terms.is_newer(identity.broker_name, identity.epoch)
            and own is not None
            and own.identity.broker_name == identity.broker_name
            and own.owners[0] is owner
            and self._live[held].heard_at <= self._clock.monotonic() - MASTER_SILENT_S
        )

    def _may_change(self, address: str, owner: object | None) -> bool:
        live = self._live[address]
        return live.owners[0] is owner or self.is_expired(live)

    def refuse(self, identity: BrokerIdentity, reason: str) -> NoReturn:
        self._counted_log.report(
            logger,
            logging.WARNING,
            "broker name claimed by another peer, refused",
            f"broker_name={identity.broker_name}",
            "broker_id=%d address=%s reason=%s",
            identity.broker_id,
            identity.broker_addr,
            reason,
        )
        raise RequestRefusedError(ResponseCode.NO_PERMISSION, reason)

    def is_expired(self, live: LiveBroker) -> bool:
        return live.heard_at <= self._clock.monotonic() - BROKER_EXPIRED_S
