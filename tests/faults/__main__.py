"""Fault runs of any length, by hand or by night.

    python -m tests.faults kill --cycles 1000           the broker, under load, both flush modes
    python -m tests.faults kill-store --cycles 1000     a process that is nothing but a store
    python -m tests.faults flip --count 2000 [--guarded]
    python -m tests.faults power --cuts 1000            SYNC_FLUSH, an ext4 that forgets; root only
    python -m tests.faults recovery --body 1024         how fast a start goes through the log
    python -m tests.faults syscalls                     every n-th call of a kind fails, or kills

Exit code 0 when nothing was wrong. A seed is printed; given back, it repeats the same choices.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.faults import broker_kill, flips, kill, power, recovery_speed, syscalls
from tests.faults.writer import POOLED


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    kills = commands.add_parser("kill", help="kill -9 the broker under load")
    stores = commands.add_parser("kill-store", help="kill -9 a process that puts messages")
    for command in (kills, stores):
        command.add_argument("--cycles", type=int, default=30, help="of each flush mode")
    bits = commands.add_parser("flip", help="flip single bits of a log")
    bits.add_argument("--count", type=int, default=200)
    bits.add_argument("--guarded", action="store_true", help="with enabledAppendPropCRC=true")
    speed = commands.add_parser("recovery", help="measure how fast a start is")
    speed.add_argument("--megabytes", type=int, default=700)
    speed.add_argument("--body", type=int, default=1024, help="bytes")
    cuts = commands.add_parser("power", help="cut the power of a file system")
    cuts.add_argument("--cuts", type=int, default=20)
    commands.add_parser("syscalls", help="fail, or kill at, the n-th system call")
    for command in (kills, stores, bits, cuts):
        command.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = parser.parse_args()
    if arguments.command == "recovery":
        with tempfile.TemporaryDirectory() as directory:
            for line in recovery_speed.run(Path(directory), arguments.megabytes, arguments.body):
                print(line)
        return 0
    if arguments.command == "syscalls":
        with tempfile.TemporaryDirectory() as directory:
            called = syscalls.run(Path(directory), None)
        print(called)
        return 1 if called.wrong else 0
    print(f"seed={arguments.seed}")
    dice = random.Random(arguments.seed)
    if arguments.command == "power":
        with tempfile.TemporaryDirectory() as directory:
            cut = power.run(Path(directory), arguments.cuts, dice)
        print(cut)
        return 1 if cut.wrong else 0
    if arguments.command == "flip":
        flipped = flips.run(arguments.count, dice, is_guarded=arguments.guarded)
        print(flipped)
        return 1 if flipped.wrong else 0
    wrong = False
    modes = ["ASYNC_FLUSH", "SYNC_FLUSH"]
    if arguments.command == "kill-store":
        modes.append(POOLED)
    for flush_disk_type in modes:
        with tempfile.TemporaryDirectory() as directory:
            runner = broker_kill.run if arguments.command == "kill" else kill.run
            killed = runner(Path(directory), flush_disk_type, arguments.cycles, dice)
        print(flush_disk_type, killed)
        wrong = wrong or bool(killed.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
