"""Run an appliance under even load for hours: no messages are lost, and resources stay level.

    python -m tools.soak --minutes 120

Exit code 0 means no problems, 1 means problems, 2 means a missing prerequisite.
A run prints its seed; --seed repeats its choices.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.faults import command_line
from tools.faults.command_line import Command, say
from tools.results import documents
from tools.results.machine import about, provenance
from tools.results.pages import render
from tools.soak import pages, soak

if TYPE_CHECKING:
    from argparse import Namespace
    from random import Random


def _soak(arguments: Namespace, directory: Path, dice: Random) -> bool:
    found = soak.run(
        directory,
        arguments.minutes,
        dice,
        rate=arguments.rate,
        restart_minutes=arguments.restart_minutes,
        keep=arguments.out,
        say=say,
    )
    pages.write(arguments.out, found)
    say(str(found))
    say(f"figures saved to {arguments.out}")
    if arguments.write:
        command = provenance("tools.soak")["command"]
        documents.write(arguments.write, "soak", pages.soak_of(found, command, about()))
        (arguments.write / "images").mkdir(exist_ok=True)
        (arguments.write / "images" / "soak.svg").write_text(pages.picture(found.minutes))
        render(arguments.write)
    return found.is_right


COMMAND = Command(
    "soak",
    "an appliance under even load, with restarts (redis-server, Java)",
    _soak,
    soak.missing,
    (
        (
            "--minutes",
            {"type": float, "default": 120.0, "help": "duration of the load (default 120)"},
        ),
        ("--rate", {"type": float, "help": "messages per second (default: 30 %% of the maximum)"}),
        (
            "--restart-minutes",
            {
                "type": float,
                "default": soak.RESTART_MINUTES,
                "help": f"minutes between restarts (default {soak.RESTART_MINUTES:g})",
            },
        ),
        (
            "--out",
            {
                "type": Path,
                "default": Path("soak"),
                "help": "directory for the figures (default soak)",
            },
        ),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command_line.add_options(parser, COMMAND)
    return command_line.run(COMMAND, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
