"""MetadataPersistence: writes the configuration files periodically and at shutdown.

Source: broker/BrokerController.java initialize (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.isolation import isolated
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.clock import Clock
    from broker_core.metadata.consumer_filters import ConsumerFilters
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.metadata.document_writer import DocumentWriter

WRITE_PERIOD_S = 1.0
"""The longest time that an unawaited change of a topic or group stays unwritten."""
FILTERS_PERIOD_S = 10.0


class MetadataPersistence(Service):
    """Writes changes that no client waits for. Event loop only.

    `writers` belong to topics and groups. `offsets_period_s` is called before each wait, because
    the period may change.
    """

    def __init__(
        self,
        writers: Sequence[DocumentWriter],
        offsets: ConsumerOffsets,
        filters: ConsumerFilters[Any],
        offsets_period_s: Callable[[], float],
        clock: Clock,
    ) -> None:
        super().__init__()
        self._writers = tuple(writers)
        self._offsets = offsets
        self._filters = filters
        self._offsets_period_s = offsets_period_s
        self._clock = clock

    def start(self) -> None:
        self.spawn_forever(self._clock, self._write_changes_forever, name="metadata-changes")
        self.spawn_forever(self._clock, self._persist_offsets_forever, name="consumer-offsets")
        self.spawn_forever(self._clock, self._persist_filters_forever, name="consumer-filters")

    async def shutdown(self) -> None:
        """Stop, and write the last changes."""
        await super().shutdown()
        failure: Exception | None = None
        # If the log lacks the leases of messages before these offsets, those messages would be
        # lost.
        is_durable = await self._offsets.until_durable()
        for write in (
            *(writer.write_now for writer in self._writers),
            *((self._offsets.persist,) if is_durable else ()),
            self._filters.persist,
        ):
            # An error in one file must not keep the others from being written.
            with isolated("writing a configuration file at shutdown", write) as last:
                write()
            failure = failure or last.error
        if failure is not None:
            raise failure

    async def _write_changes_forever(self) -> None:
        while True:
            await self._clock.sleep(WRITE_PERIOD_S)
            for writer in self._writers:
                with isolated("writing a configuration file", writer):
                    await writer.write()

    async def _persist_offsets_forever(self) -> None:
        while True:
            await self._clock.sleep(self._offsets_period_s())
            await self._offsets.persist_in_thread()

    async def _persist_filters_forever(self) -> None:
        while True:
            await self._clock.sleep(FILTERS_PERIOD_S)
            await self._filters.persist_in_thread()
