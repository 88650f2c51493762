"""Run faults of one kind, for any length of time.

    kill         kill -9 of the broker under load: acknowledged messages survive
    kill-store   the same with a store process
    clients      kill -9 of the broker under Java, Go and raw clients
    power        power cuts on an ext4 file system that loses unflushed data
    syscalls     kill the process or fail the call at every n-th system call of a kind
    flip         flip single bits of a log: at most one message is lost, and it's reported
    flush-error  fail each flush with EIO, then cut the power: nothing was acknowledged
    model        compare the store with a model, with crashes between any two lines
    promotion    kill -9 of a master under load, promote its slave, restart the old master
    slave-kill   kill -9 of the slave of a SYNC_MASTER: its files have acknowledged messages
    partition    partitions, flapping, slow and lossy links between a master and its slave
    appliance    kill -9 of each process of an appliance: it restarts, reports run once
    redis-outage Redis down for minutes: only reports wait, and they resume afterwards
    simulate     brokers, disks, network and clients in one process, on a simulated clock
    chaos        a cluster under a seeded schedule of all kinds of faults
    recovery     how fast a start reads the log
    check        check a history saved by a run

    python -m tools.faults kill --cycles 1000
    python -m tools.faults clients --kills 50
    python -m tools.faults power --cuts 1000
    python -m tools.faults flip --count 2000 --guarded
    python -m tools.faults flush-error --broker 5.3.3
    python -m tools.faults model --examples 2000
    python -m tools.faults promotion --rounds 200
    python -m tools.faults slave-kill --cycles 200
    python -m tools.faults partition --rounds 500
    python -m tools.faults appliance --rounds 10
    python -m tools.faults redis-outage --seconds 180
    python -m tools.faults simulate --seeds 0-99999
    python -m tools.faults chaos --seed 1 --minutes 10

Exit code 0 means no problems, 1 means problems, 2 means a missing prerequisite.
Each run prints its seed; --seed repeats it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import network
from tools.faults import (
    appliance_kills,
    broker_flips,
    broker_kill,
    chaos,
    checker,
    client_kills,
    command_line,
    flips,
    flush_errors,
    kill,
    model,
    operations,
    options,
    partition,
    power,
    promotion,
    real_clients,
    recovery_speed,
    redis_outage,
    slave_kill,
    syscalls,
    tested_brokers,
    variants,
)
from tools.faults.command_line import Command, say
from tools.faults.publishing import publish, tally_of
from tools.faults.simulation import runner, world
from tools.faults.tally import Tally
from tools.faults.writer import EXTENDED, POOLED

if TYPE_CHECKING:
    from argparse import Namespace
    from random import Random

FLUSH_DISK_TYPES = ("ASYNC_FLUSH", "SYNC_FLUSH")
MEMBERS = {
    variants.OURS: "all members are Trebuchet",
    variants.ORIGINAL_SLAVE: "the slave is RocketMQ 4.9.7",
    variants.ORIGINAL_MASTER: "the master is RocketMQ 4.9.7",
    variants.ORIGINAL_NAMESRV: "one name server is RocketMQ 4.9.7",
}
STORE_KINDS = (*FLUSH_DISK_TYPES, POOLED, EXTENDED)


def _programs(arguments: Namespace, directory: Path) -> real_clients.Programs | None:
    """Build RocketMQ's own clients, for a run that uses them.

    RocketMQ's broker runs without a name server here, so it only gets raw clients.
    """
    if (
        arguments.clients == options.RAW
        or getattr(arguments, "broker", tested_brokers.OURS) != tested_brokers.OURS
    ):
        return None
    return real_clients.build(directory / "programs")


def _kill(arguments: Namespace, directory: Path, dice: Random) -> bool:
    is_right, programs = True, _programs(arguments, directory)
    for kind in arguments.flush_disk_type or FLUSH_DISK_TYPES:
        found = broker_kill.run(
            directory / kind,
            kind,
            arguments.cycles,
            dice,
            kind=arguments.broker,
            programs=programs,
            say=say,
        )
        say(f"{arguments.broker} {kind} {found}")
        publish(arguments, found, kind, broker=arguments.broker)
        is_right = is_right and not found.wrong
    return is_right


def _kill_store(arguments: Namespace, directory: Path, dice: Random) -> bool:
    is_right = True
    for kind in arguments.flush_disk_type or STORE_KINDS:
        found = kill.run(directory / kind, kind, arguments.cycles, dice)
        say(f"{kind} {found}")
        publish(arguments, found, kind)
        is_right = is_right and not found.wrong
    return is_right


def _clients(arguments: Namespace, directory: Path, dice: Random) -> bool:
    programs = real_clients.build(directory / "programs")
    found = client_kills.run(directory / "run", arguments.kills, dice, programs)
    say(str(found))
    publish(arguments, tally_of(found.report, found.kills, []))
    return not found.report.findings


def _check(arguments: Namespace, directory: Path, dice: Random) -> bool:
    report = checker.check(operations.read(arguments.file))
    say(str(report))
    return not report.findings


def _power(arguments: Namespace, directory: Path, dice: Random) -> bool:
    wrong = []
    if arguments.broker == tested_brokers.OURS:
        found = power.run(directory, arguments.cuts, dice, say=say)
        if arguments.cuts:
            publish(arguments, found, "a store", is_a_store=True)
        wrong += found.wrong
    programs = _programs(arguments, directory)
    through_broker = power.run_broker(
        directory,
        arguments.broker_cuts,
        dice,
        kind=arguments.broker,
        programs=programs,
        say=say,
    )
    say(f"{arguments.broker} {through_broker}")
    if arguments.broker_cuts:
        publish(arguments, through_broker, "a broker", broker=arguments.broker)
    return not wrong and not through_broker.wrong


def _syscalls(arguments: Namespace, directory: Path, dice: Random) -> bool:
    found = syscalls.run(directory, None)
    say(str(found))
    return not found.wrong


def _flush_error(arguments: Namespace, directory: Path, dice: Random) -> bool:
    programs = _programs(arguments, directory)
    found = flush_errors.run(
        directory, arguments.cycles, dice, kind=arguments.broker, programs=programs, say=say
    )
    say(f"{arguments.broker} {found}")
    publish(arguments, found, broker=arguments.broker)
    return not found.wrong


def _flip(arguments: Namespace, directory: Path, dice: Random) -> bool:
    if arguments.broker is not None:
        through_broker = broker_flips.run(
            directory, arguments.count, dice, kind=arguments.broker, say=say
        )
        say(f"{arguments.broker} {through_broker}")
        publish(arguments, through_broker, "a broker with 3,000 messages", broker=arguments.broker)
        return not through_broker.wrong
    found = flips.run(arguments.count, dice, is_guarded=arguments.guarded)
    say(str(found))
    with_crc = " with enabledAppendPropCRC" if arguments.guarded else ""
    publish(arguments, found, f"a store{with_crc}")
    return not found.wrong


def _model(arguments: Namespace, directory: Path, dice: Random) -> bool:
    wrong = model.run(arguments.examples, arguments.seed, shrink=arguments.shrink, say=say)
    say(wrong)
    return not wrong


def _promotion(arguments: Namespace, directory: Path, dice: Random) -> bool:
    is_right, programs, broker = True, _programs(arguments, directory), arguments.broker
    for kind in arguments.kind or promotion.kinds_of(broker):
        found = promotion.run(
            directory / kind,
            kind,
            arguments.rounds,
            dice,
            broker=broker,
            programs=programs,
            say=say,
        )
        say(f"{broker} {kind} {found}")
        publish(arguments, found, kind, broker=broker)
        is_right = is_right and not found.wrong
    return is_right


def _slave_kill(arguments: Namespace, directory: Path, dice: Random) -> bool:
    is_right, lacking, programs = True, power.missing(), _programs(arguments, directory)
    for kind in arguments.kind or slave_kill.KINDS:
        if kind == slave_kill.POWER and lacking:
            say(f"{kind} can't run here. Install or provide {lacking}.")
            is_right = False
            continue
        found = slave_kill.run(
            directory / kind, kind, arguments.cycles, dice, programs=programs, say=say
        )
        say(f"{kind} {found}")
        publish(arguments, found, kind)
        is_right = is_right and not found.wrong
    return is_right


def _appliance(arguments: Namespace, directory: Path, dice: Random) -> bool:
    programs = _programs(arguments, directory)
    place = directory / "appliance"
    found = appliance_kills.run(place, arguments.rounds, dice, programs=programs, say=say)
    say(str(found))
    back = [seconds for each in found.back_seconds.values() for seconds in each]
    publish(arguments, tally_of(found.history, len(back), back))
    return not found.wrong


def _redis_outage(arguments: Namespace, directory: Path, dice: Random) -> bool:
    programs = _programs(arguments, directory)
    try:
        found = redis_outage.run(directory, arguments.seconds, programs=programs, say=say)
    except AssertionError as error:
        say(f"wrong: {error}")
        return False
    say(str(found))
    publish(arguments, tally_of(found.history, 1, [found.pages, found.made]))
    return True


def _partition(arguments: Namespace, directory: Path, dice: Random) -> bool:
    programs = _programs(arguments, directory)
    found = partition.run(
        directory, arguments.rounds, dice, kind=arguments.broker, programs=programs, say=say
    )
    say(str(found))
    publish(arguments, found, broker=arguments.broker)
    return not found.wrong


def _simulate(arguments: Namespace, directory: Path, dice: Random) -> bool:
    if arguments.trace is not None:
        outcome = world.run(arguments.seeds[0], is_mixed=arguments.mixed, keeps_trace=True)
        arguments.trace.write_text("\n".join([str(outcome.plan), *outcome.trace, *outcome.wrong]))
    found = runner.run(arguments.seeds, is_mixed=arguments.mixed, say=say)
    say(str(found))
    if not found.wrong:
        tally = Tally(cycles=found.seeds, acknowledged=found.acknowledged)
        publish(arguments, tally, "with groups and transactions" if arguments.mixed else "")
    return not found.wrong


def _chaos(arguments: Namespace, directory: Path, dice: Random) -> bool:
    members, has_real = arguments.members, arguments.clients == options.ALL
    lacking = chaos.missing(variants.variant(arguments.seed, members, has_real=has_real))
    if lacking:
        say(f"This cluster can't run here. Install or provide {lacking}.")
        return False
    keep = arguments.keep or Path(tempfile.gettempdir())
    found = chaos.run(
        directory,
        arguments.seed,
        arguments.minutes,
        members=members,
        has_real=has_real,
        keep=keep,
        say=say,
    )
    say(str(found))
    tally = tally_of(found.report, found.faults.total(), found.recovered)
    publish(arguments, tally, MEMBERS[found.variant.members])
    if found.is_right:
        return True
    again = f"python -m tools.faults chaos --seed {found.seed} --minutes {arguments.minutes:g}"
    again += "" if members is None else f" --members {members}"
    again += "" if has_real else f" --clients {options.RAW}"
    say(f"again: {again}")
    return False


def _recovery(arguments: Namespace, directory: Path, dice: Random) -> bool:
    for line in recovery_speed.run(directory, arguments.megabytes, arguments.body):
        say(line)
    return True


def _nothing() -> str:
    return ""


COMMANDS = (
    Command(
        "kill",
        "kill -9 the broker under load",
        _kill,
        _nothing,
        (
            ("--cycles", options.number(30, "number of kills in each flush mode")),
            ("--flush-disk-type", options.kinds(FLUSH_DISK_TYPES)),
            options.BROKER,
            options.CLIENTS,
        ),
    ),
    Command(
        "kill-store",
        "kill -9 a process that stores messages",
        _kill_store,
        _nothing,
        (
            ("--cycles", options.number(30, "number of kills of each kind of store")),
            ("--flush-disk-type", options.kinds(STORE_KINDS)),
        ),
    ),
    Command(
        "clients",
        "kill -9 the broker under Java, Go and raw clients",
        _clients,
        real_clients.missing,
        (("--kills", options.number(20, "number of kills of the broker")),),
    ),
    Command(
        "power",
        "cut the power under a file system (needs root and loop devices)",
        _power,
        power.missing,
        (
            ("--cuts", options.number(20, "number of power cuts of a store process")),
            ("--broker-cuts", options.number(5, "number of power cuts of a broker under load")),
            options.BROKER,
            options.CLIENTS,
        ),
    ),
    Command(
        "syscalls",
        "fail the n-th system call, or kill the process at it (needs strace)",
        _syscalls,
        syscalls.missing,
    ),
    Command(
        "flip",
        "flip single bits of a log",
        _flip,
        _nothing,
        (
            ("--count", options.number(200, "number of bits to flip")),
            ("--guarded", {"action": "store_true", "help": "set enabledAppendPropCRC=true"}),
            (
                "--broker",
                {
                    "choices": tested_brokers.KINDS,
                    "help": "start this broker on each log, instead of a store in this process",
                },
            ),
        ),
    ),
    Command(
        "flush-error",
        "fail each flush, then cut the power (needs root, loop devices and strace)",
        _flush_error,
        flush_errors.missing,
        (
            ("--cycles", options.number(10, "number of rounds of sends while flushes fail")),
            options.BROKER,
            options.CLIENTS,
        ),
    ),
    Command(
        "model",
        "compare the store with a model of it",
        _model,
        _nothing,
        (
            ("--examples", options.number(200, "number of random store histories")),
            ("--shrink", {"action": "store_true", "help": "shrink a failure; takes minutes"}),
        ),
    ),
    Command(
        "promotion",
        "kill a master, promote its slave, restart the old master",
        _promotion,
        _nothing,
        (
            ("--rounds", options.number(20, "number of promotions for each kind of durability")),
            ("--kind", options.kinds(tuple(promotion.KINDS))),
            (
                "--broker",
                {
                    "choices": promotion.BROKERS,
                    "default": tested_brokers.OURS,
                    "help": (
                        "broker to test: ours (default), or a RocketMQ controller set, whose "
                        "findings are only counted"
                    ),
                },
            ),
            options.CLIENTS,
        ),
    ),
    Command(
        "slave-kill",
        "kill the slave of a SYNC_MASTER and check its files",
        _slave_kill,
        _nothing,
        (
            (
                "--cycles",
                options.number(20, "number of kills for each haAckMode, and of power cuts"),
            ),
            ("--kind", options.kinds(slave_kill.KINDS)),
            options.CLIENTS,
        ),
    ),
    Command(
        "partition",
        "separate a master from its slave (needs root and network namespaces)",
        _partition,
        network.missing,
        (
            ("--rounds", options.number(50, "number of partitions")),
            (
                "--broker",
                {
                    "choices": tested_brokers.KINDS,
                    "default": tested_brokers.OURS,
                    "help": (
                        "broker to test: ours (default), or a RocketMQ pair, whose findings are "
                        "only counted"
                    ),
                },
            ),
            options.CLIENTS,
        ),
    ),
    Command(
        "appliance",
        "kill -9 each process of an appliance (needs redis-server and Java)",
        _appliance,
        appliance_kills.missing,
        (
            ("--rounds", options.number(3, "number of rounds through all processes")),
            options.CLIENTS,
        ),
    ),
    Command(
        "redis-outage",
        "stop an appliance's Redis and restart it later (needs redis-server and Java)",
        _redis_outage,
        redis_outage.missing,
        (
            (
                "--seconds",
                {
                    "type": float,
                    "default": redis_outage.GONE_SECONDS,
                    "help": f"duration without Redis (default {redis_outage.GONE_SECONDS:g})",
                },
            ),
            options.CLIENTS,
        ),
    ),
    Command(
        "simulate",
        "simulate brokers, disks, network and clients with faults",
        _simulate,
        _nothing,
        (
            (
                "--seeds",
                {
                    "type": options.seeds,
                    "default": range(1000),
                    "help": "range of seeds, A-B (default 0-999)",
                },
            ),
            (
                "--mixed",
                {"action": "store_true", "help": "add filters, retries and transactions"},
            ),
            ("--trace", {"type": Path, "help": "write the steps of the first seed to this file"}),
        ),
    ),
    Command(
        "chaos",
        "run a cluster under seeded faults (needs root, network namespaces and strace)",
        _chaos,
        chaos.missing,
        (
            (
                "--minutes",
                {"type": float, "default": 1.0, "help": "duration of the faults (default 1)"},
            ),
            (
                "--members",
                {
                    "choices": variants.MEMBERS,
                    "help": "members that run RocketMQ (default: chosen by seed)",
                },
            ),
            options.CLIENTS,
            ("--keep", {"type": Path, "help": "directory for the history of a failed run"}),
        ),
    ),
    Command(
        "recovery",
        "measure the startup speed",
        _recovery,
        _nothing,
        (
            ("--megabytes", options.number(700, "size of the log")),
            ("--body", options.number(1024, "size of a message body in bytes")),
        ),
    ),
    Command(
        "check",
        "check a saved history",
        _check,
        _nothing,
        (("file", {"type": Path, "help": "history saved by a run, one record per line"}),),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, title="commands")
    for command in COMMANDS:
        subparser = commands.add_parser(
            command.name, help=command.summary, description=command.summary
        )
        command_line.add_options(subparser, command)
    arguments = parser.parse_args()
    (command,) = (one for one in COMMANDS if one.name == arguments.command)
    return command_line.run(command, arguments)


if __name__ == "__main__":
    sys.exit(main())
