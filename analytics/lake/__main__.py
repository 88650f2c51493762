"""`python -m analytics.lake COMMAND`: keeps a lake, and does to it what an operator asks.

In an appliance it is `manage.py lake COMMAND`, which knows where everything is.

Exit codes: 0 done, 1 refused, or `verify` found a difference; 2 bad arguments.
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
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from analytics.errors import ReportError
from analytics.guest import is_guest, step_back
from analytics.lake.bodies import BodyRules
from analytics.lake.gold import bring_up
from analytics.lake.ingest import Ingest, Source
from analytics.lake.keeper import Keeper
from analytics.lake.maintenance import BRONZE_DAYS, maintain
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
from broker_core.log_lines import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

    from analytics.lake.parts import Executor

logger = logging.getLogger("analytics.lake")

# Of TREBUCHET_DATA: where the collector of the console writes.
SAMPLES_FOLDER = "samples"
EXIT_REFUSED = 1
EXIT_BAD_ARGUMENTS = 2
BROKER_NAME = re.compile(r"[A-Za-z0-9_.|%-]{1,127}")
# Whether deploy/up keeps a lake; where it is then follows from TREBUCHET_DATA.
PLAIN_WORDS = frozenset({"", "true", "on", "1", "yes", "false", "off", "0", "no"})
EPILOG = """\
environment, for what is not given:
  TREBUCHET_LAKE         the lake: a directory, or s3://bucket/prefix
                         (default: lake in TREBUCHET_DATA)
  TREBUCHET_LAKE_BROKER  the broker's name, brokerName (default: whose log was kept last, else
                         broker-a)
  TREBUCHET_LAKE_BODIES  a file that says whose bodies are kept (default: nobody's)
  TREBUCHET_LAKE_DAYS    for how many days messages are kept (default: 30)
  TREBUCHET_STORE, TREBUCHET_COMMIT_LOG
                         storePathRootDir, and storePathCommitLog where it is set
  AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION
                         for a lake in S3; the secret's file by AWS_SECRET_ACCESS_KEY_FILE
"""


class Arguments(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_ARGUMENTS, f"{self.prog}: {message}\n")


def parser_of(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Arguments(
        prog=program,
        description="Keep a lake of Delta tables that grows from a broker's log.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Arguments
    )
    for name, text in {
        "run": "keep the lake up with the log until a signal",
        "ingest": "take what is new now, and end",
        "status": "tables, watermark, lag, last batch, errors",
        "verify": "compare the lake with the log, message by message",
        "rebuild": "replace what the lake has of a log by what the log says now",
        "forget": "erase what the messages with a key say",
        "maintain": "compact closed days, drop old ones, delete files that nobody names",
    }.items():
        one = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        one.add_argument("--lake", metavar="URI", help="a directory, or s3://bucket/prefix")
        one.add_argument("--state", type=Path, metavar="DIR", help="for lock and status")
        one.add_argument("--store", type=Path, metavar="DIR", help="storePathRootDir")
        one.add_argument("--commit-log", type=Path, metavar="DIR", help="storePathCommitLog")
        one.add_argument("--broker", metavar="NAME", help="brokerName")
        if name == "forget":
            one.add_argument("key", metavar="KEY", help="one of KEYS, or a UNIQ_KEY")
        if name == "rebuild":
            one.add_argument("--yes", action="store_true", help="do it; without, only say what")
            one.add_argument(
                "--gold", action="store_true", help="count gold from bronze; leave bronze alone"
            )
        if name == "status":
            one.add_argument("--json", action="store_true", help="print JSON")
    return parser


class Command:
    """One command with what it works on."""

    def __init__(
        self,
        given: argparse.Namespace,
        environment: Mapping[str, str],
        executor: Executor | None,
    ) -> None:
        """Raises ReportError where the arguments and the environment name nothing usable."""
        self.program = _program(environment)
        data = environment.get("TREBUCHET_DATA", "")
        home = Path(data) / "lake" if data else None
        samples = Path(data) / SAMPLES_FOLDER if data else None
        lake = given.lake or environment.get("TREBUCHET_LAKE", "")
        if lake.lower() in PLAIN_WORDS:
            lake = str(home or "")
        store = given.store or environment.get("TREBUCHET_STORE", "")
        if not lake:
            raise ReportError("Which lake? Give --lake, or set TREBUCHET_LAKE.")
        if not store:
            raise ReportError("Which store? Give --store, or set TREBUCHET_STORE.")
        commit_log = given.commit_log or environment.get("TREBUCHET_COMMIT_LOG", "")
        rules = environment.get("TREBUCHET_LAKE_BODIES", "")
        self.given = given
        self.days = _days(environment.get("TREBUCHET_LAKE_DAYS", ""))
        self.place = LakePlace.of(
            lake, given.state or (home if "://" in lake else None), environment
        )
        broker = given.broker or broker_of(self.place, environment)
        if not BROKER_NAME.fullmatch(broker):
            raise ReportError(f"{broker!r} is not a broker's name.")
        self.source = Source(
            broker,
            Path(store),
            Path(commit_log) if commit_log else None,
            BodyRules.read(Path(rules) if rules else None),
        )
        self.ingest = Ingest(self.place, self.source, executor)
        self.samples = None if samples is None else SampledHours(self.place, samples)

    def execute(self) -> int:
        """Run it and print what a person wants to know.

        Raises:
            ReportError: it was refused.
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
                done = maintain(self.place, datetime.now(UTC).date(), bronze_days=self.days)
                print(f"compacted: {len(done.compacted)} days")
                print(f"dropped: {len(done.dropped)} days")
                print(f"deleted: {done.deleted_files} files")
                return 0

    def _run(self) -> int:
        stop = threading.Event()

        def on_signal(number: int, frame: FrameType | None) -> None:
            stop.set()

        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)
        if is_guest():
            step_back()
        source = self.source
        logger.info(
            "keeping: lake=%s broker=%s store=%s", self.place.uri, source.broker, source.store
        )
        keeper = Keeper(
            self.place, source, self.ingest, bronze_days=self.days, samples=self.samples
        )
        keeper.run(stop)
        logger.info("ended")
        return 0

    def _ingest(self) -> int:
        rows = batches = 0
        while (batch := self.ingest.batch()) is not None:
            rows, batches = rows + batch.rows, batches + 1
        with self.place.locked():
            bring_up(self.place)
        print(f"{rows} messages in {batches} batches")
        hours = sampled = 0
        while self.samples is not None and self.samples.waiting():
            with self.place.locked():
                done = self.samples.take()
            if done is None:
                break
            hours, sampled = hours + done.hours, sampled + done.rows
        if hours:
            print(f"{sampled} samples of {hours} hours")
        return 0

    def _status(self) -> int:
        found = status_of(self.place, self.source, self.ingest)
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
                f"{each.table} says {each.messages_in_gold} messages on {each.day}, "
                f"bronze.messages {each.messages_in_bronze}."
            )
        if found.in_gold:
            print(f"`{self.program} rebuild --gold --yes` counts {len(found.in_gold)} anew.")
        if found.is_equal:
            print("The lake has each of them once, and no others.")
            return EXIT_REFUSED if found.in_gold else 0
        if found.events:
            print(f"{found.events} events are not those of the log.")
        if found.repeated:
            print(f"{found.repeated} are in the lake more than once.")
        if found.missing:
            print(f"{len(found.missing)} are not in the lake: offsets {shown(found.missing)}.")
        if found.surplus:
            print(f"{len(found.surplus)} are not in the log: offsets {shown(found.surplus)}.")
        print(f"`{self.source.repair} --yes` replaces them by what the log says.")
        return EXIT_REFUSED

    def _rebuild(self) -> int:
        if self.given.gold:
            return self._rebuild_gold()
        todo = (
            rebuild(self.place, self.source)
            if self.given.yes
            else rebuilding(self.place, self.source)
        )
        will = "are" if self.given.yes else "would be"
        print(
            f"{todo.rows} messages of {self.source.broker} {will} taken out of the lake, from "
            f"offset {todo.log_from} on; {todo.log_to - todo.log_from} bytes of the log {will} "
            "read again with the next batches."
        )
        if not self.given.yes:
            print("Nothing was changed: say --yes to do it.")
        return 0

    def _rebuild_gold(self) -> int:
        if not self.given.yes:
            print("Each day that bronze has would be counted from the beginning.")
            print("Nothing was changed: say --yes to do it.")
        elif rebuild_gold(self.place):
            print("Each day that bronze has was counted from the beginning.")
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
    lines.append(f"not in yet  {found['pending_bytes']} bytes")
    if found["committed_ms"]:
        lines.append(f"last batch  {_time(found['committed_ms'])}")
    keeper = found["keeper"]
    lines.append(f"keeper      {_time(keeper['checked_ms']) if keeper else 'has never run'}")
    if keeper and keeper.get("error"):
        lines.append(f"error       {keeper['error']}")
    if found["warning"]:
        lines.append(f"warning     {found['warning']}")
    return lines


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _program(environment: Mapping[str, str]) -> str:
    return environment.get("TREBUCHET_LAKE_PROGRAM", "python -m analytics.lake")


def main(
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    executor: Executor | None = None,
) -> int:
    environment = os.environ if environment is None else environment
    program = _program(environment)
    given = parser_of(program).parse_args(arguments)
    log_to_stderr("%(levelname)s %(name)s: %(message)s")
    try:
        return Command(given, environment, executor).execute()
    except ReportError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
