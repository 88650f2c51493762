"""`python -m analytics.lake COMMAND`: maintain a lake and run an operator's commands on it.

In an appliance, use `manage.py lake COMMAND`, which finds the directories itself.

Exit codes: 0 done; 1 refused, or `verify` found a difference; 2 bad arguments.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from analytics.errors import ReportError
from analytics.lake.bodies import BodyRules
from analytics.lake.ingest import Ingest, Source
from analytics.lake.jobs import Done, LakeJobs
from analytics.lake.maintenance import BRONZE_DAYS
from analytics.lake.place import LakePlace
from analytics.lake.repair import (
    DIFFERENCES_SHOWN_MAX,
    forget,
    rebuild,
    rebuild_gold,
    rebuilding,
    shown,
    verify,
)
from analytics.lake.samples import SampledHours
from analytics.lake.status import broker_of, status_of
from analytics.lake.writer import ArrowWriter
from analytics.low_priority import is_low_priority, lower_priority
from broker_core.log_lines import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from analytics.lake.writer import Writer

logger = logging.getLogger("analytics.lake")

# Below TREBUCHET_DATA: the console's collector writes here.
SAMPLES_FOLDER = "samples"
EXIT_REFUSED = 1
EXIT_BAD_ARGUMENTS = 2
# Intervals at which `run` checks the log and maintains the lake.
INGEST_SECONDS = 30.0
MAINTAIN_SECONDS = 300.0
BROKER_NAME = re.compile(r"[A-Za-z0-9_.|%-]{1,127}")
# These values only say whether deploy/up keeps a lake; TREBUCHET_DATA determines where.
PLAIN_WORDS = frozenset({"", "true", "on", "1", "yes", "false", "off", "0", "no"})
EPILOG = """\
environment variables, used for options that are left out:
  TREBUCHET_LAKE         the lake: a directory, or s3://bucket/prefix
                         (default: lake in TREBUCHET_DATA)
  TREBUCHET_LAKE_BROKER  the broker's name, brokerName (default: the broker ingested last, or
                         broker-a)
  TREBUCHET_LAKE_BODIES  a file with rules for storing bodies (default: store no bodies)
  TREBUCHET_LAKE_DAYS    number of days to keep messages (default: 30)
  TREBUCHET_LAKE_FORMATS delta, or delta,iceberg (default: delta)
  TREBUCHET_STORE, TREBUCHET_COMMIT_LOG
                         storePathRootDir, and storePathCommitLog if it is set
  AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION
                         for a lake in S3; AWS_SECRET_ACCESS_KEY_FILE can name a file with
                         the secret
"""


class Arguments(argparse.ArgumentParser):
    """An argument parser that reports each error as one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_ARGUMENTS, f"{self.prog}: {message}\n")


def parser_of(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Arguments(
        prog=program,
        description="Maintain a lake of Delta tables that is filled from a broker's log.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Arguments
    )
    for name, text in {
        "run": "keep the lake up to date with the log until stopped by a signal",
        "ingest": "ingest new messages and exit",
        "status": "print tables, watermark, pending bytes, last batch and errors",
        "verify": "compare the lake with the log, message by message",
        "rebuild": "replace the lake's copy of a log with the log's current contents",
        "forget": "erase the content of messages with a key",
        "maintain": "merge small files, drop old days, delete unreferenced files",
    }.items():
        one = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        one.add_argument("--lake", metavar="URI", help="a directory, or s3://bucket/prefix")
        one.add_argument("--state", type=Path, metavar="DIR", help="directory for lock and status")
        one.add_argument("--store", type=Path, metavar="DIR", help="storePathRootDir")
        one.add_argument("--commit-log", type=Path, metavar="DIR", help="storePathCommitLog")
        one.add_argument("--broker", metavar="NAME", help="brokerName")
        if name == "forget":
            one.add_argument("key", metavar="KEY", help="one of KEYS, or a UNIQ_KEY")
        if name == "rebuild":
            one.add_argument(
                "--yes", action="store_true", help="make the changes instead of only printing them"
            )
            one.add_argument(
                "--gold",
                action="store_true",
                help="count gold again from bronze; don't change bronze",
            )
        if name == "status":
            one.add_argument("--json", action="store_true", help="print JSON")
    return parser


class Command:
    """One command, with its lake and log."""

    def __init__(
        self,
        given: argparse.Namespace,
        environment: Mapping[str, str],
        writer: Callable[[], Writer],
    ) -> None:
        """Raise ReportError if the arguments and the environment don't name a lake."""
        self.program = program_of(environment)
        data = environment.get("TREBUCHET_DATA", "")
        home = Path(data) / "lake" if data else None
        samples = Path(data) / SAMPLES_FOLDER if data else None
        lake = given.lake or environment.get("TREBUCHET_LAKE", "")
        if lake.lower() in PLAIN_WORDS:
            lake = str(home or "")
        store = given.store or environment.get("TREBUCHET_STORE", "")
        if not lake:
            raise ReportError("No lake is specified. Add --lake or set TREBUCHET_LAKE.")
        if not store:
            raise ReportError("No store is specified. Add --store or set TREBUCHET_STORE.")
        commit_log = given.commit_log or environment.get("TREBUCHET_COMMIT_LOG", "")
        rules = environment.get("TREBUCHET_LAKE_BODIES", "")
        self.given = given
        self.place = LakePlace.of(
            lake, given.state or (home if "://" in lake else None), environment
        )
        broker = given.broker or broker_of(self.place, environment)
        if not BROKER_NAME.fullmatch(broker):
            raise ReportError(f"{broker!r} isn't a valid broker name.")
        self.source = Source(
            broker,
            Path(store),
            Path(commit_log) if commit_log else None,
            BodyRules.read(Path(rules) if rules else None),
        )
        self.jobs = LakeJobs(
            self.place,
            writer,
            bronze_days=_days(environment.get("TREBUCHET_LAKE_DAYS", "")),
            samples=None if samples is None else SampledHours(self.place, samples),
        )

    def execute(self) -> int:
        """Run the command and print its result.

        Raises:
            ReportError: the command was refused.
        """
        match self.given.command:
            case "run":
                return self._run()
            case "ingest":
                return self._ingest()
            case "status":
                return self._status()
            case "verify":
                return self._verify()
            case "rebuild":
                return self._rebuild()
            case "forget":
                count = forget(self.place, self.given.key)
                print(
                    f"{count} messages have lost their content in the lake. The log keeps its own "
                    "copy until it expires."
                    if count
                    else "No message of the lake has that key."
                )
                return 0
            case _:
                done = self._all(self.jobs.maintain)
                print(f"Merged {done.steps} groups of files. Maintenance is complete.")
                return 0

    def _run(self) -> int:
        stop = threading.Event()

        def on_signal(number: int, frame: FrameType | None) -> None:
            stop.set()

        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)
        if is_low_priority():
            lower_priority()
        source = self.source
        logger.info(
            "lake jobs started lake=%s broker=%s store=%s",
            self.place.uri,
            source.broker,
            source.store,
        )
        maintain_at = time.monotonic() + MAINTAIN_SECONDS
        while not stop.is_set():
            is_all = self._try(lambda: self.jobs.ingest(source))
            if time.monotonic() >= maintain_at:
                if self._try(self.jobs.maintain):
                    maintain_at = time.monotonic() + MAINTAIN_SECONDS
                else:
                    is_all = False
            if is_all:
                stop.wait(INGEST_SECONDS)
        logger.info("lake jobs stopped")
        return 0

    def _try(self, job: Callable[[], Done]) -> bool:
        """Run a job and return whether to wait. Any failure is retried later."""
        try:
            return job().is_all
        except (ReportError, OSError) as error:
            logger.warning("lake job failed, will retry error=%s", error)
            return True

    def _all(self, job: Callable[[], Done]) -> Done:
        """Repeat a job until it has nothing left to do; return the combined result."""
        every = Done(is_all=False)
        while not every.is_all:
            done = job()
            every.rows += done.rows
            every.batches += done.batches
            every.sampled_hours += done.sampled_hours
            every.steps += done.steps
            every.is_all = done.is_all
        return every

    def _ingest(self) -> int:
        done = self._all(lambda: self.jobs.ingest(self.source))
        print(f"{done.rows} messages in {done.batches} batches")
        if done.sampled_hours:
            print(f"samples of {done.sampled_hours} hours")
        return 0

    def _status(self) -> int:
        found = status_of(self.place, self.source, Ingest(self.place, self.source))
        if self.given.json:
            print(json.dumps(found, indent=2))
            return 0
        for line in _lines(found):
            print(line)
        return 0

    def _verify(self) -> int:
        found = verify(self.place, self.source)
        print(
            f"{found.messages} messages of {self.source.broker} from {found.log_from} to "
            f"{found.log_to} of the log"
        )
        for each in found.in_gold[:DIFFERENCES_SHOWN_MAX]:
            print(
                f"{each.table} has {each.messages_in_gold} messages on {each.day}, but "
                f"bronze.messages has {each.messages_in_bronze}."
            )
        if found.in_gold:
            print(f"Run `{self.program} rebuild --gold --yes` to count {len(found.in_gold)} again.")
        if found.is_equal:
            print("The lake has each of these messages once, and no others.")
            return EXIT_REFUSED if found.in_gold else 0
        if found.events:
            print(f"{found.events} events differ from the log.")
        if found.repeated:
            print(f"{found.repeated} messages are in the lake more than once.")
        if found.missing:
            missing = len(found.missing)
            print(f"{missing} messages aren't in the lake: offsets {shown(found.missing)}.")
        if found.surplus:
            surplus = len(found.surplus)
            print(f"{surplus} messages aren't in the log: offsets {shown(found.surplus)}.")
        print(f"Run `{self.source.repair} --yes` to replace them with the log's contents.")
        return EXIT_REFUSED

    def _rebuild(self) -> int:
        if self.given.gold:
            return self._rebuild_gold()
        todo = (
            rebuild(self.place, self.source)
            if self.given.yes
            else rebuilding(self.place, self.source)
        )
        will, again = ("were", "read") if self.given.yes else ("would be", "would read")
        print(
            f"{todo.rows} messages of {self.source.broker} {will} removed from the lake, from "
            f"offset {todo.log_from} on. The next batches {again} {todo.log_to - todo.log_from} "
            "bytes of the log again."
        )
        if not self.given.yes:
            print("Nothing was changed. Add --yes to make the changes.")
        return 0

    def _rebuild_gold(self) -> int:
        if not self.given.yes:
            print("Every day in bronze would be counted again.")
            print("Nothing was changed. Add --yes to make the changes.")
        elif rebuild_gold(self.place):
            print("Every day in bronze was counted again.")
        else:
            print("There is nothing to count yet.")
        return 0


def _days(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and 0 < int(text) <= 36_500):
        raise ReportError(f"TREBUCHET_LAKE_DAYS is {text!r}; it must be a number of days.")
    return int(text) if text else BRONZE_DAYS


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"lake        {found['lake']}", f"broker      {found['broker']}"]
    for table in found["tables"]:
        days = f", {table['first_day']} to {table['last_day']}" if table.get("first_day") else ""
        lines.append(
            f"{table['table']:<18}  {table['rows']} rows, {table['files']} files, "
            f"{table['bytes']} bytes{days}"
        )
    watermark = found["watermark"]
    lines.append(f"watermark   {'none yet' if watermark is None else watermark}")
    lines.append(f"log         {found['log_from']} to {found['log_to']}")
    lines.append(f"pending     {found['pending_bytes']} bytes")
    if found["committed_ms"]:
        lines.append(f"last batch  {_time(found['committed_ms'])}")
    jobs = found["jobs"]
    last = f"{_time(jobs['checked_ms'])}, {jobs.get('engine') or 'no engine'}" if jobs else "never"
    lines.append(f"last job    {last}")
    if jobs and jobs.get("error"):
        lines.append(f"error       {jobs['error']}")
    if found["warning"]:
        lines.append(f"warning     {found['warning']}")
    return lines


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def program_of(environment: Mapping[str, str]) -> str:
    """Return the program name to show in help and errors."""
    return environment.get("TREBUCHET_LAKE_PROGRAM", "python -m analytics.lake")


def main(
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    writer: Callable[[], Writer] = ArrowWriter,
) -> int:
    """Run one command; `writer` starts the engine of ingest and maintenance."""
    environment = os.environ if environment is None else environment
    program = program_of(environment)
    given = parser_of(program).parse_args(arguments)
    log_to_stderr("%(levelname)s %(name)s: %(message)s")
    try:
        return Command(given, environment, writer).execute()
    except ReportError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
