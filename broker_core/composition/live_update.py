"""LiveUpdate: applies changes of keys while the broker runs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.composition.log_levels import apply_log_levels
from broker_core.config.properties import replace_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.composition.foundation import Foundation
    from broker_core.delivery.slow_consumers import SlowConsumers
    from broker_core.metadata.topics import Topics
    from broker_core.namesrv.registration import BrokerRegistration
    from broker_core.processors.send import SendProcessor
    from broker_core.storage import Storage

logger = logging.getLogger(__name__)


class LiveUpdate:
    """Notifies services that keep a copy of a value, and writes changes to the broker's file.

    Most values are read on each use, so they need no notification. Event loop only.
    """

    def __init__(
        self,
        foundation: Foundation,
        topics: Topics,
        registration: BrokerRegistration,
        send: SendProcessor,
        slow_consumers: SlowConsumers,
    ) -> None:
        self._configuration = foundation.configuration
        self._files = foundation.files
        self._topics = topics
        self._registration = registration
        self._send = send
        self._slow_consumers = slow_consumers

    def apply(self, changed: Mapping[str, str]) -> None:
        """Apply changed keys; the configuration already has their new values."""
        self._send.reconfigure(self._configuration.store.max_message_size)
        self._slow_consumers.watch(
            watching=self._configuration.broker.disable_consume_if_consumer_read_slowly
        )
        if any(key.startswith("logLevel") for key in changed):
            apply_log_levels(self._configuration)
        if "brokerPermission" in changed:
            self._topics.touch()
            self._registration.announce()
        keep(self._files, self._configuration.path, changed)


def keep(files: Storage, path: str | None, changed: Mapping[str, str]) -> None:
    """Write keys that were changed over the wire to the configuration file, if any."""
    if path is None:
        return
    file = Path(path)
    try:
        text = (files.read(file) or b"").decode("utf-8", errors="replace")
        files.write_atomically(file, replace_values(text, changed).encode(), keep_backup=True)
    except OSError as error:
        logger.warning(
            "configuration change not saved, a restart reverts it path=%s reason=%s", path, error
        )
