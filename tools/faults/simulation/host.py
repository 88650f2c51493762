"""Host: a machine with a disk, whose broker runs, is killed, and restarts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from broker_core.broker import Broker
from broker_core.config.loading import build
from broker_core.errors import BrokerError
from tests.support.faulty_storage import FaultyStorage
from tests.support.long_timeouts import PATIENT
from tools.faults.crash_points import Biased
from tools.faults.simulation.node import HostClock, Process

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.faults.simulation.loop import SimulatedLoop
    from tools.faults.simulation.network import Network

PORT, HA_PORT, NAMESRV_PORT = 10911, 10912, 9876
STORE = Path("/store")
SMALL_FILES = {
    "mappedFileSizeCommitLog": 64 * 1024,
    "mappedFileSizeConsumeQueue": 100 * 20,
    "mappedFileSizeConsumeQueueExt": 4096,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "transientStorePoolSize": 3,
    "maxMessageSize": 16 * 1024,
}
AGAIN_S = 0.25
"""A process restarts this long after its end, when no data of the old one is in flight."""


class Host:
    """A host.

    `log_event` receives each event for the trace, `on_crash` before each crash with the end of the
    log that survives it.
    """

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        network: Network,
        keys: dict[str, object],
        log_event: Callable[[str], None],
        on_crash: Callable[[Host, int], None],
        *,
        is_native: bool,
    ) -> None:
        self.name = name
        self.clock = HostClock(loop)
        self.storage = FaultyStorage()
        self.process = Process(name)
        self.process.is_alive = False
        self.broker: Broker | None = None
        self.starts = 0
        self.is_gone = False
        """Whether the machine is permanently lost."""
        self.is_disk_failing = False
        """Flushes may fail, so the broker needn't start."""
        self.wrong: list[str] = []
        self.past: list[object] = []
        """Objects of dead processes, kept so that they aren't collected before the run is over."""
        self._loop = loop
        self._network = network
        self._log_event = log_event
        self._on_crash = on_crash
        self._is_native = is_native
        self.on_start: Callable[[Host], None] = lambda host: None
        table = {
            "brokerName": "broker-a",
            "brokerIP1": name,
            "brokerIP2": name,
            "listenPort": PORT,
            "haListenPort": HA_PORT,
            "namesrvListenPort": NAMESRV_PORT,
            "storePathRootDir": STORE,
            **SMALL_FILES,
            **PATIENT,
            **keys,
        }
        self._table = {key: str(value) for key, value in table.items()}

    @property
    def address(self) -> str:
        return f"{self.name}:{PORT}"

    def start(self) -> None:
        """Start the broker on the contents of the disk."""
        if self.is_gone or self.process.is_alive:
            return
        self._network.without_power.discard(self.name)
        self.starts += 1
        self._log_event(f"start {self.name}")
        self.on_start(self)
        self.process = Process(self.name)
        self.process.run(self._boot)

    def kill(self) -> None:
        """Kill the process: the kernel keeps written data."""
        if self.process.is_alive:
            self._log_event(f"kill {self.name}")
            self._crash(is_cut=False)
            self.storage = self.storage.crash()
            self._network.close_of(self.process)

    def cut_power(self, seed: int, kept: float) -> None:
        """Kill the process and lose unflushed data, except for a share of it."""
        if self.process.is_alive:
            self._log_event(f"cut {self.name}")
            self._crash(is_cut=True)
            self.storage = self.storage.cut_power(Biased(seed, kept))
            self._network.without_power.add(self.name)

    def at_call(self, number: int, then: Callable[[], None]) -> None:
        """Call a function at the n-th call of the disk from now on."""
        storage, left = self.storage, number

        def called(_: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                storage.on_call = None
                then()

        storage.on_call = called

    def stop(self) -> None:
        """Stop the broker; it restarts automatically."""
        broker = self.broker
        if self.process.is_alive and broker is not None and not broker.ending.is_requested:
            self._log_event(f"stop {self.name}")
            if self.is_disk_failing:
                # It may end with uncommitted or unflushed data, like a killed process.
                self._on_crash(self, self._safe_to(is_cut=False))
            self.process.run(broker.ending.restart, "the simulation wants it")

    def forget(self) -> None:
        """Drop the broker and all its predecessors."""
        self.process.is_alive = False
        self.broker = None
        self.past.clear()

    def _crash(self, *, is_cut: bool) -> None:
        self.storage.on_call = None
        if self.broker is not None:
            self._on_crash(self, self._safe_to(is_cut=is_cut))
        self.process.is_alive = False
        self.past += [self.broker, self.process, self.storage]
        self.broker = None

    def _safe_to(self, *, is_cut: bool) -> int:
        """Return the end of the surviving log."""
        assert self.broker is not None
        store, config = self.broker.storage.store, self.broker.configuration.store
        if is_cut:
            return store.flushed_where
        if config.is_transient_store_pool_enabled:
            return store.files.log.committed_where
        return store.max_commit_log_offset

    def _boot(self) -> None:
        configuration, errors = build(self._table)
        assert not errors, errors
        native = {"TREBUCHET_NATIVE": "" if self._is_native else "0"}
        process = self.process
        try:
            with mock.patch.dict(os.environ, native):
                broker = Broker(configuration, self.clock, self.storage)
            broker.load()
        except BrokerError as error:
            if process.is_alive and not self.is_disk_failing:
                self.wrong.append(f"{self.name} didn't start: {error}")
            return
        if process.is_alive:
            self.broker = broker
            self._keep(self._serve(broker))

    def _keep(self, coroutine: object) -> None:
        self.past.append(self._loop.create_task(coroutine))

    async def _serve(self, broker: Broker) -> None:
        request = asyncio.Event()
        process = self.process
        try:
            await broker.start()
            broker.ending.on_request(request.set)
            await request.wait()
        except BrokerError as error:
            if not (broker.ending.is_requested or self.is_disk_failing):
                self.wrong.append(f"{self.name} didn't start: {error}")
        await broker.shutdown()
        if broker.ending.failure:
            self.wrong.append(f"{self.name} ends: {broker.ending.failure}")
        self._log_event(f"ended {self.name}")
        self.past.append(broker)
        self.broker = None
        process.is_alive = False
        self.storage = self.storage.crash()
        self._network.close_of(process)
        self._network.loop.later(AGAIN_S, self.start)
