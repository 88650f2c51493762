"""Comparison: a slave's log must be a prefix of its master's before replication starts.

The diverging part is saved to another directory (`divergence`), then the broker restarts and
recovery cuts the log, before anything else reads the files. Data after a hole that a start found is
treated the same way: the master sends all of it again. Nothing is cut for a master without epochs,
a real RocketMQ, because either of the two logs may be the right one. There the operator decides,
with `python -m broker_core truncate`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from broker_core.errors import RemotingError, ReplicationError
from broker_core.ha.divergence import Place, find_shared_end, save_diverged
from broker_core.ha.epochs import FIRST_EPOCH, LogRange, shared_end
from broker_core.ha.peers import WithoutEpochsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.ha.epochs import Epochs
    from broker_core.ha.peers import BrokerState, Peers
    from broker_core.ha.shutdown import Shutdown
    from broker_core.storage import Storage
    from broker_core.store.message_store import MessageStore

logger = logging.getLogger(__name__)

HA_PORT_STEP = 1
DOUBTS_MAX = 3
"""A connection may break in the middle of a record; if it happens more often, the record is bad."""


class LogComparison:
    """Compares this log with a master's; the log must not change meanwhile. Event loop only.

    Attributes:
        master_role: the role of the last compared master, "" before the first.
    """

    def __init__(
        self,
        epochs: Epochs,
        store: MessageStore,
        storage: Storage,
        peers: Peers,
        ending: Shutdown,
        master_address: Callable[[], str | None],
    ) -> None:
        """`master_address` returns the master's client address, from the name servers."""
        self._epochs = epochs
        self._store = store
        self._files = store.files
        self._storage = storage
        self._peers = peers
        self._ending = ending
        self._master_address = master_address
        self.master_role = ""
        self._doubted = -1
        self._doubts = 0

    async def before_transfer(self, ha_address: str) -> None:
        """Return once the master at this HA address may be followed.

        Raises:
            ReplicationError: the master must not be followed; the text says why.
        """
        # An incomplete record may be from another master.
        replay = self._store.replay
        replay.cut()
        address = self._master_address() or _default_client_address(ha_address)
        try:
            state = await self._peers.state_of(address, follows=True, doubted=replay.doubted_where)
        except WithoutEpochsError:
            replay.step_over(())
            await self._compare_with_original(address)
            self._report_doubt(address, replay.doubted_where)
            return
        except RemotingError as error:
            raise ReplicationError(
                f"couldn't get the epochs of the master at {address}: {error}"
            ) from error
        except OSError as error:
            raise ReplicationError(f"the logs cannot be compared: {error}") from error
        await self._compare(address, state)

    async def _compare(self, address: str, state: BrokerState) -> None:
        if state.is_slave:
            raise ReplicationError(f"the broker at {address} is a slave, not a master")
        epochs = self._epochs
        if state.newest < epochs.newest:
            raise ReplicationError(
                f"the master at {address} is in epoch {state.newest}, but this broker followed "
                f"a master of epoch {epochs.newest}; the master at {address} was replaced"
            )
        own = self._own_range()

        async def ask(places: Sequence[Place]) -> Sequence[str | None]:
            return (await self._peers.state_of(address, places)).fingerprints

        try:
            limit = shared_end(own, state.log)
            end = await find_shared_end(
                self._files.log, limit, state.log, ask, self._last_before(limit)
            )
            if end < own.max_offset:
                parts = f"its log diverges from that of the master at {address} at offset {end}"
                await self._cut_at(end, own, state, parts)
            hole = self._new_hole(state)
            if hole is not None:
                lacks = f"its log is damaged at offset {hole}, where the log at {address} is intact"
                await self._cut_at(hole, own, state, lacks)
            epochs.adopt(state.epochs)
        except RemotingError as error:
            raise ReplicationError(f"the logs cannot be compared: {error}") from error
        except OSError as error:
            raise ReplicationError(
                f"the logs diverge, and the part that the master lacks couldn't be saved: {error}"
            ) from error
        self._store.replay.step_over(state.damaged)
        self.master_role = state.broker_role

    def _new_hole(self, state: BrokerState) -> int | None:
        """Return where this start found damage in this log but the master's log is intact.

        A power cut may have removed data from the middle of the unflushed part. Continuing past the
        hole would claim that everything before it is here, and make the master acknowledge missing
        data.
        """
        for found in self._files.quarantine.found_at_start:
            is_his = any(
                one < found.offset_to and found.offset_from < to for one, to in state.damaged
            )
            if found.offset_from >= state.min_offset and not is_his:
                return found.offset_from
        return None

    async def _cut_at(self, end: int, own: LogRange, state: BrokerState, why: str) -> None:
        place = await asyncio.to_thread(
            save_diverged,
            self._files.log,
            end,
            own,
            state.epochs,
            self._files.paths.diverged,
            self._storage,
        )
        self._epochs.schedule_cut(end)
        reason = f"{why}; the {own.max_offset - end} bytes after it are saved in {place} and cut"
        self._ending.restart(reason)
        raise ReplicationError(reason)

    async def _compare_with_original(self, address: str) -> None:
        if self._epochs.newest > FIRST_EPOCH:
            raise ReplicationError(
                f"the master at {address} has no epochs, but this broker followed a master of "
                f"epoch {self._epochs.newest}; the master at {address} was replaced. To follow "
                "it anyway, stop this broker, move epoch.json out of its store directory and "
                "start it again"
            )
        own = self._own_range()
        try:
            other = await self._peers.range_of_original(address)
            limit = min(own.max_offset, other.max_offset)

            async def ask(places: Sequence[Place]) -> Sequence[str | None]:
                return await self._peers.fingerprints_of_original(address, places)

            end = await find_shared_end(
                self._files.log, limit, other, ask, self._last_before(limit)
            )
        except RemotingError as error:
            raise ReplicationError(f"the logs cannot be compared: {error}") from error
        if end < own.max_offset:
            raise ReplicationError(
                f"this broker's log ends at offset {own.max_offset}, but matches that of the "
                f"master at {address}, which has no epochs, only up to offset {end}. Stop this "
                f"broker and run `python -m broker_core truncate -c FILE --at {end}`, which "
                "saves the rest before it cuts it, or follow another master"
            )

    def _report_doubt(self, address: str, doubted: int | None) -> None:
        """Log what to do when a master without epochs repeatedly sends an invalid record."""
        if doubted is None or doubted != self._store.max_commit_log_offset:
            return
        self._doubts = self._doubts + 1 if doubted == self._doubted else 1
        self._doubted = doubted
        if self._doubts == DOUBTS_MAX:
            logger.warning(
                "master log damaged, replication stopped master=%s commit_log_offset=%d "
                "attempts=%d",
                address,
                doubted,
                DOUBTS_MAX,
            )

    def _own_range(self) -> LogRange:
        log = self._files.log
        return LogRange(self._epochs.entries, log.min_offset, log.max_offset)

    def _last_before(self, limit: int) -> Place | None:
        """Return the last record with a unit before an offset."""
        last: Place | None = None
        for queue in self._files.queues:
            queue_offset = queue.lower_bound(queue.min_offset, lambda offset: offset < limit) - 1
            unit = queue.unit(queue_offset) if queue_offset >= queue.min_offset else None
            if unit is not None and (last is None or unit[0] > last.commit_log_offset):
                last = Place(unit[0], unit[1])
        return last


def _default_client_address(ha_address: str) -> str:
    """Return the client address of a broker whose HA port is the default."""
    host, _, port = ha_address.rpartition(":")
    return f"{host}:{int(port) - HA_PORT_STEP}"
