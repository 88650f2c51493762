"""SimulatedLoop: an event loop without threads, sockets or waits, for repeatable runs.

Time jumps to the next timer when no callback is ready. Executor calls run on the loop, each worker
in sequence, and take a random time: they act first and complete later, like a flush overtaken by a
power cut.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
from collections import deque
from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from tools.faults.simulation.node import NOBODY, PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context
    from random import Random

    from tools.faults.simulation.network import Endpoint, Listening

QUICK_S = 0.0005
SLOW_S = 0.03
STALL_S = 7.0
SLOW_SHARE = 0.05
STALL_SHARE = 0.0003


class DeadlockError(Exception):
    """No callback is ready and no timer is due."""


class _Handle:
    """A callback that is skipped when its process is dead or it was cancelled."""

    __slots__ = ("arguments", "callback", "context", "is_cancelled", "number", "time")

    def __init__(
        self,
        time: float,
        number: int,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        self.time = time
        self.number = number
        self.callback = callback
        self.arguments = arguments
        self.context = copy_context() if context is None else context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.time


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The event loop. `connect` and other socket functions are a Network's.

    Timers of the same time run in creation order.
    """

    def __init__(self, dice: Random) -> None:
        self.now = 0.0
        self.calls = 0
        """Executor calls so far."""
        self.stall_share = 0.0
        """The share of executor calls that take longer than a flush may."""
        self.connect: Callable[..., Any] | None = None
        self._dice = dice
        self._free_at: dict[object, float] = {}
        self._ready: deque[_Handle] = deque()
        self._due: list[tuple[float, int, _Handle]] = []
        self._numbers = itertools.count()
        self._on_error: Callable[..., object] | None = None

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def set_exception_handler(self, handler: Callable[..., object] | None) -> None:
        self._on_error = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._on_error is not None:
            self._on_error(self, context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_until_complete(self, future: Any) -> Any:
        """Run until a coroutine ends."""
        task = self.create_task(future)
        asyncio._set_running_loop(self)
        try:
            while not task.done():
                self._turn()
        finally:
            asyncio._set_running_loop(None)
        return task.result()

    def forget(self) -> None:
        """Drop ready callbacks and timers, and run any callbacks that this triggers."""
        self._on_error = None
        asyncio._set_running_loop(self)
        try:
            self._ready.clear()
            self._due.clear()
            gc.collect()
        finally:
            asyncio._set_running_loop(None)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call back outside of any process."""
        NOBODY.run(self.call_at, self.now + seconds, call)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(self.now, 0, callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Handle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Handle:
        handle = _Handle(when, next(self._numbers), callback, args, context)
        heapq.heappush(self._due, (when, handle.number, handle))
        return handle

    def _turn(self) -> None:
        """Run ready callbacks, or advance the time until there are some."""
        if not self._ready:
            if not self._due:
                raise DeadlockError("nothing is due")
            self.now = max(self.now, self._due[0][0])
        while self._due and self._due[0][0] <= self.now:
            self._ready.append(heapq.heappop(self._due)[2])
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            process = handle.context.get(PROCESS)
            if not handle.is_cancelled and (process is None or process.is_alive):
                try:
                    handle.context.run(handle.callback, *handle.arguments)
                except Exception as error:  # noqa: BLE001  the loop continues, like any other
                    words = {"message": "a callback failed", "exception": error}
                    self.call_exception_handler(words)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        self.calls += 1
        done: asyncio.Future[Any] = self.create_future()
        begins = max(self.now, self._free_at.get(executor, 0.0)) + self._drawn()
        ends = begins + self._drawn()
        if executor is not None:
            self._free_at[executor] = ends
        self.call_at(begins, self._work, done, ends, func, args)
        return done

    def _drawn(self) -> float:
        share = self._dice.random()
        if share < self.stall_share:
            return STALL_S
        return self._dice.random() * (SLOW_S if share < SLOW_SHARE else QUICK_S)

    def _work(
        self,
        done: asyncio.Future[Any],
        ends: float,
        func: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        try:
            found = func(*args)
        except Exception as error:  # noqa: BLE001  like an executor: the awaiter handles it
            self.call_at(ends, _fail, done, error)
        else:
            self.call_at(ends, _finish, done, found)

    def add_reader(  # type: ignore[override]
        self, one: Listening | Endpoint, callback: Callable[..., object], *args: Any
    ) -> None:
        one.watch(callback, args)

    def remove_reader(self, one: Listening | Endpoint) -> bool:  # type: ignore[override]
        one.unwatch()
        return True

    async def create_connection(  # type: ignore[override]
        self, make: Callable[[], Any], host: str, port: int, **options: Any
    ) -> tuple[Any, Any]:
        assert self.connect is not None
        return await self.connect(make, host, port)  # type: ignore[no-any-return]

    async def connect_accepted_socket(  # type: ignore[override]
        self, make: Callable[[], Any], one: Endpoint, **options: Any
    ) -> tuple[Any, Any]:
        return one, one.adopt(make)


class InlineExecutor:
    """An executor that runs each submitted call at once; the loop handles awaited ones."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*args))
        except OSError as error:
            done.set_exception(error)
        return done

    def shutdown(self, **_: object) -> None:
        pass

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _finish(done: asyncio.Future[Any], found: object) -> None:
    if not done.done():
        done.set_result(found)


def _fail(done: asyncio.Future[Any], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
