"""Checks that a requested topic exists or existed."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from deltalake.exceptions import DeltaError
from pyarrow import ArrowException

from analytics.errors import ReportError
from analytics.lake.gold_tables import TRAFFIC
from analytics.lake.place import LakePlace
from analytics.store.reader import StoreReader
from broker_core.message import names

if TYPE_CHECKING:
    from analytics.request import Request

logger = logging.getLogger(__name__)


def require_topic(request: Request) -> None:
    """Check that the store has the requested topic, or that the lake has messages of it.

    Raises:
        ReportError: neither the store nor the lake has the topic.
    """
    topic = request.topic
    if topic is None or names.is_system_topic(topic):
        return
    known = StoreReader(request.store, commit_log_path=request.commit_log).topics()
    if known is None or topic in known or _may_be_in_lake(request, topic):
        return
    raise ReportError(f"The topic {topic} doesn't exist. Check its spelling.")


def _may_be_in_lake(request: Request, topic: str) -> bool:
    if request.lake is None:
        return False
    try:
        place = LakePlace.of(request.lake, request.lake_state, os.environ)
        if not TRAFFIC.table.exists(place):
            return False
        rows = TRAFFIC.table.dataset(place)
        return int(rows.count_rows(filter=pc.field("topic") == topic)) > 0
    except (ReportError, DeltaError, ArrowException, OSError):
        logger.warning("lake unreadable, topic not checked topic=%s", topic, exc_info=True)
        return True
