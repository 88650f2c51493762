"""The brokers whose messages reports count, if there are several."""

from __future__ import annotations

import os
from typing import NamedTuple

from django.core.cache import cache

from console.gateway.access import gateway
from console.gateway.errors import GatewayError

KEPT_S = 60
CACHE_KEY = "reports.masters"


class Scope(NamedTuple):
    """The broker whose log reports read ("" if unknown), and the other masters."""

    read: str
    others: tuple[str, ...]


def scope() -> Scope:
    """Return the scope, without other masters if there is only one or no broker responds.

    `deploy/up` names the broker of TREBUCHET_STORE.
    """
    read = os.environ.get("TREBUCHET_LAKE_BROKER", "")
    return Scope(read, tuple(name for name in masters() if name != read))


def masters() -> list[str]:
    known: list[str] | None = cache.get(CACHE_KEY)
    if known is None:
        try:
            nodes = gateway().cluster.registered().masters
        except GatewayError:
            # Reports also run without brokers.
            nodes = ()
        names = sorted({node.broker_name for node in nodes})
        known = names if len(names) > 1 else []
        cache.set(CACHE_KEY, known, KEPT_S)
    return known
