"""Store pending timers, recover them as a restart would, and deliver others at a fixed rate.

`python -m tools.bench.timers [--pending N] [--rate N] [--seconds N]`. Prints the memory of the
process without mapped files, the CPU time of the longest event-loop turn, and the lateness.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.clock import SteadyClock, SystemClock
from broker_core.config.limits import LIMITS
from broker_core.config.store import StoreConfig
from broker_core.counted_log import CountedLog
from broker_core.message.ids import host_bytes
from broker_core.message.properties import encode
from broker_core.storage import FileStorage
from broker_core.store.message_store import MessageStore
from broker_core.timers.checkpoint import Checkpoint
from broker_core.timers.events import Events
from broker_core.timers.service import TimerService
from tests.support.loop_turns import LoopTurns

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.message.message import MessageExt
    from broker_core.store.results import PutMessageResult

HOST = host_bytes("127.0.0.1", 10911)
MIB = 1 << 20
BODY = bytes(100)
PUTS_A_TURN = 100


def anonymous_bytes() -> int:
    """Return the memory of this process in bytes, without mapped files."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


class Bench:
    """A store with a timer service in a directory."""

    def __init__(self, directory: Path) -> None:
        self.late_ms: list[int] = []
        self.expected = 0
        self.is_delivered = asyncio.Event()
        self.clock = SystemClock()
        config = StoreConfig(store_path_root_dir=str(directory), message_index_enable=False)
        self.store = MessageStore(config, self.clock, FileStorage(), HOST)
        self.timers = TimerService(
            self.store,
            config,
            replace(LIMITS, pending_timer_nums_max=10_000_000),
            CountedLog(self.clock),
            self.clock,
            SteadyClock(self.clock),
            HOST,
            lambda: Checkpoint(0, 0),
            Events(self._delivered),
        )

    def send(self, due_ms: int) -> None:
        table = {"TIMER_DELIVER_MS": str(due_ms)}
        place = self.timers.defer(table, "T", 0)
        assert place is not None
        result = self.store.put_message(
            *place,
            BODY,
            encode(table),
            tags=None,
            keys=None,
            uniq_key=None,
            flag=0,
            sys_flag=0,
            born_timestamp=due_ms,
            born_host=HOST,
        )
        self.timers.note_put(result, table)

    async def send_all(self, due_of: Callable[[int], int], count: int) -> float:
        """Put timers; return the CPU time per timer in microseconds."""
        spent = 0.0
        for start in range(0, count, PUTS_A_TURN):
            began = time.thread_time()
            for number in range(start, min(start + PUTS_A_TURN, count)):
                self.send(due_of(number))
            spent += time.thread_time() - began
            await asyncio.sleep(0)
        return spent / count * 1e6

    def _delivered(
        self, message: MessageExt, _topic: str, _queue_id: int, result: PutMessageResult
    ) -> None:
        self.late_ms.append(result.store_timestamp - message.born_timestamp)
        if len(self.late_ms) == self.expected:
            self.is_delivered.set()


async def run(directory: Path, pending: int, rate: int, seconds: int) -> None:
    bench = Bench(directory)
    bench.store.load()
    await bench.store.start()
    await bench.timers.load()
    before = anonymous_bytes()
    now = bench.clock.now_ms()
    put_us = await bench.send_all(
        lambda number: now + 3_600_000 + number * 251 % 255_000_000, pending
    )
    used = anonymous_bytes() - before
    print(f"pending                  {bench.timers.count:,}")
    print(f"put                      {put_us:.1f} µs of CPU time per timer")
    print(f"memory                   {used / MIB:.1f} MiB")

    bench.timers.begin()
    began, began_cpu = time.monotonic(), time.thread_time()
    with LoopTurns() as turns:
        await bench.timers.load()
    took, cpu = time.monotonic() - began, time.thread_time() - began_cpu
    print(f"recovery                 {took:.2f} s, {cpu:.2f} s of CPU time")
    print(f"longest turn             {turns.longest_s * 1000:.2f} ms of CPU time")

    bench.timers.start()
    start = bench.clock.now_ms() + 500
    bench.expected = rate * seconds
    await bench.send_all(lambda number: start + number * 1000 // rate, rate * seconds)
    with LoopTurns() as turns:
        await bench.is_delivered.wait()
    late = sorted(bench.late_ms)
    print(f"delivered                {len(late):,} at {rate:,} per second")
    middle, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
    print(f"lateness                 p50 {middle}, p99 {p99}, {late[0]} to {late[-1]} ms")
    print(f"longest turn             {turns.longest_s * 1000:.2f} ms of CPU time")
    await bench.timers.shutdown()
    await bench.store.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.timers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pending", type=int, default=1_000_000, help="number of pending timers")
    parser.add_argument("--rate", type=int, default=1_000, help="timers due per second")
    parser.add_argument("--seconds", type=int, default=10, help="seconds to deliver at that rate")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="timers-") as directory:
        asyncio.run(run(Path(directory), args.pending, args.rate, args.seconds))


if __name__ == "__main__":
    main()
