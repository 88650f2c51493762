"""`manage.py demo`: send and consume messages, so that every page has data to show."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from broker_core.message import names
from console.demo.grpc_traffic import GrpcTraffic
from console.demo.traffic import DemoTraffic
from console.demo.workload import RATE_MAX, TOPICS, DemoError
from console.gateway.access import gateway

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from console.demo.workload import Workload

DEFAULT_RATE = 40


class Command(BaseCommand):
    """Runs the demo traffic until Ctrl-C, or for some seconds."""

    help = (
        "Send and consume messages over the remoting protocol or gRPC, so that every page has data"
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--rate",
            type=int,
            default=DEFAULT_RATE,
            help=f"average messages per second, 1 to {RATE_MAX} (default: {DEFAULT_RATE})",
        )
        parser.add_argument(
            "--seconds", type=float, help="stop after this many seconds (default: never)"
        )
        parser.add_argument(
            "--topics",
            nargs="+",
            default=list(TOPICS),
            metavar="TOPIC",
            help=f"topics to use; missing ones are created (default: {' '.join(TOPICS)})",
        )
        parser.add_argument(
            "--grpc",
            action="store_true",
            help="connect as RocketMQ 5 clients do, to the gRPC port of each broker that has one",
        )
        parser.add_argument(
            "--end-with-stdin",
            action="store_true",
            help="stop when standard input closes, which happens when the parent process ends",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not 1 <= options["rate"] <= RATE_MAX:
            raise CommandError(f"--rate must be between 1 and {RATE_MAX}, not {options['rate']}.")
        if options["seconds"] is not None and not options["seconds"] > 0:
            raise CommandError(f"--seconds must be above 0, not {options['seconds']}.")
        for topic in options["topics"]:
            if (problem := names.check_topic(topic)) is not None:
                raise CommandError(f"--topics: {problem}")
        kind = GrpcTraffic if options["grpc"] else DemoTraffic
        traffic = kind(gateway(), options["topics"], options["rate"], self._say)
        try:
            asyncio.run(self._run(traffic, options["seconds"], options["end_with_stdin"]))
        except DemoError as error:
            raise CommandError(str(error)) from error
        counts = traffic.counts
        self._say(f"Demo ended: sent {counts.sent}, consumed {counts.consumed}.")

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()

    async def _run(self, traffic: Workload, seconds: float | None, end_with_stdin: bool) -> None:
        loop = asyncio.get_running_loop()
        work = loop.create_task(traffic.run(seconds), name="demo traffic")
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, work.cancel)
        if end_with_stdin:
            stdin = sys.stdin.fileno()
            os.set_blocking(stdin, False)

            def look() -> None:
                # The parent never writes: readable means closed.
                if not os.read(stdin, 1024):
                    loop.remove_reader(stdin)
                    work.cancel()

            loop.add_reader(stdin, look)
        with contextlib.suppress(asyncio.CancelledError):
            await work
