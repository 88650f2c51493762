"""Comparison: before a slave takes anything from a master, its log must be the beginning of his.

What goes beyond is saved aside (`divergence`), and the broker starts again and cuts it: the code
that cuts is recovery's, on files that nobody reads meanwhile. So does what follows a hole that a
start found: the master sends all of it again. Nothing is cut for a master without epochs, a real
RocketMQ: nobody knows which of the two logs is right. There the operator decides, by `python -m
broker_core truncate`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from broker_core.errors import RemotingError, ReplicationError
from broker_core.ha.divergence import Place, find_shared_end, save_aside
from broker_core.ha.epochs import FIRST_EPOCH, LogRange, shared_end
from broker_core.ha.peers import WithoutEpochsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.ha.ending import Ending
    from broker_core.ha.epochs import Epochs
    from broker_core.ha.peers import BrokerState, Peers
    from broker_core.storage import Storage
    from broker_core.store.message_store import MessageStore

logger = logging.getLogger(__name__)

HA_PORT_STEP = 1
DOUBTS_MAX = 3
"""A connection may break in the middle of a record; more often than that it is the record."""


class LogComparison:
    """Compares the own log with a master's; the log must not change meanwhile. Event loop only.

    Attributes:
        master_role: the role of the master that was compared with last, "" before.
    """

    def __init__(
        self,
        epochs: Epochs,
        store: MessageStore,
        storage: Storage,
        peers: Peers,
        ending: Ending,
        master_address: Callable[[], str | None],
    ) -> None:
        """`master_address` returns where the master serves clients, as name servers say."""
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
        """Return when the master at this HA address may be followed.

        Raises:
            ReplicationError: it may not, and why.
        """
        # What came of a record that is not whole was another master's, perhaps.
        replay = self._store.replay
        replay.cut()
        address = self._master_address() or _beside(ha_address)
        try:
            state = await self._peers.state_of(address, follows=True, doubted=replay.doubted_where)
        except WithoutEpochsError:
            replay.step_over(())
            await self._compare_with_original(address)
            self._doubt(address, replay.doubted_where)
            return
        except RemotingError as error:
            raise ReplicationError(
                f"the master at {address} cannot be asked for its epochs: {error}"
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
                f"the master at {address} knows epoch {state.newest}, and this broker followed one "
                f"of epoch {epochs.newest}: that master was replaced"
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
                parts = f"its log parts from that of the master at {address} at offset {end}"
                await self._cut_at(end, own, state, parts)
            hole = self._new_hole(state)
            if hole is not None:
                lacks = f"its log was found damaged at offset {hole}, which {address} has whole"
                await self._cut_at(hole, own, state, lacks)
            epochs.adopt(state.epochs)
        except RemotingError as error:
            raise ReplicationError(f"the logs cannot be compared: {error}") from error
        except OSError as error:
            raise ReplicationError(
                f"the logs part, and what the master lacks cannot be saved: {error}"
            ) from error
        self._store.replay.step_over(state.damaged)
        self.master_role = state.broker_role

    def _new_hole(self, state: BrokerState) -> int | None:
        """Return where this start found the log damaged, though its master has what was there.

        A power cut may have taken it from the middle of what was not flushed. To go on behind it
        would tell the master that all before is here, and have it acknowledge what is not.
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
            save_aside,
            self._files.log,
            end,
            own,
            state.epochs,
            self._files.paths.diverged,
            self._storage,
        )
        self._epochs.ask_for_cut(end)
        reason = f"{why}; the {own.max_offset - end} bytes behind are saved in {place} and cut"
        self._ending.start_again(reason)
        raise ReplicationError(reason)

    async def _compare_with_original(self, address: str) -> None:
        if self._epochs.newest > FIRST_EPOCH:
            raise ReplicationError(
                f"the master at {address} knows no epochs, and this broker followed one of epoch "
                f"{self._epochs.newest}: that master was replaced. If it is to be followed all the "
                "same, stop this broker, move epoch.json out of its store directory and start it"
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
                f"this broker's log ends at offset {own.max_offset} and shares the one of the "
                f"master at {address}, which knows no epochs, up to offset {end} only. Stop this "
                f"broker and run `python -m broker_core truncate -c FILE --at {end}`: it saves the "
                "rest aside before it cuts it. Or follow another master"
            )

    def _doubt(self, address: str, doubted: int | None) -> None:
        """Say what to do when a master that cannot be asked sends no record again and again."""
        if doubted is None or doubted != self._store.max_commit_log_offset:
            return
        self._doubts = self._doubts + 1 if doubted == self._doubted else 1
        self._doubted = doubted
        if self._doubts == DOUBTS_MAX:
            logger.warning(
                "the log of the master at %s is damaged at offset %d: %d times no whole record "
                "came from there. This slave serves what it has. To go on behind the damage, stop "
                "it, move its store directory away and start it: it begins with the master's last "
                "file",
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


def _beside(ha_address: str) -> str:
    """Return where a broker serves clients whose HA port is the default one."""
    host, _, port = ha_address.rpartition(":")
    return f"{host}:{int(port) - HA_PORT_STEP}"
