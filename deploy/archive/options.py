"""The command lines of deploy/backup and deploy/restore.

Standard library only: --help must work before anything is installed.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.settings import options
from deploy.terminal.backup_help import BACKUP, BACKUP_EPILOG, RESTORE, RESTORE_EPILOG
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """The command line of deploy/backup, with absolute paths.

    Attributes:
        target: the path of the copy; with is_verified, the backup to check.
        lake: as in deploy.settings.options.Options.
    """

    target: Path
    data: Path
    broker_file: Path | None
    has_lake: bool
    is_verified: bool
    lake: str | None


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """The command line of deploy/restore, with absolute paths."""

    source: Path
    data: Path


def parse_backup(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> BackupOptions:
    """Read the command line of deploy/backup; SystemExit for --help (0) or bad arguments (2)."""
    parser = _parser("deploy/backup", BACKUP, BACKUP_EPILOG)
    parser.add_argument(
        "target", metavar="TARGET", type=Path, help=translated("path of the new backup")
    )
    _add_data(parser)
    parser.add_argument(
        "-c",
        metavar="FILE",
        type=Path,
        help=translated("broker configuration, if you pass one to deploy/up"),
    )
    parser.add_argument(
        "--without-lake", action="store_true", help=translated("leave out the lake")
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help=translated("don't copy; check that the files of TARGET are unchanged"),
    )
    given = parser.parse_args(arguments)
    lake = environment.get("TREBUCHET_LAKE", "").strip()
    return BackupOptions(
        target=_absolute(given.target),
        data=_data(given, environment),
        broker_file=_absolute(given.c) if given.c else None,
        has_lake=not given.without_lake,
        is_verified=given.verify,
        lake=options.lake_of(lake),
    )


def parse_restore(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> RestoreOptions:
    """Read the command line of deploy/restore; SystemExit for --help (0) or bad arguments (2)."""
    parser = _parser("deploy/restore", RESTORE, RESTORE_EPILOG)
    parser.add_argument(
        "source", metavar="SOURCE", type=Path, help=translated("a backup from deploy/backup")
    )
    _add_data(parser)
    given = parser.parse_args(arguments)
    return RestoreOptions(source=_absolute(given.source), data=_data(given, environment))


def _parser(program: str, description: str, epilog: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=program,
        description=translated(description),
        epilog=translated(epilog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help=translated("data directory (default: TREBUCHET_DATA, else data in the checkout)"),
    )


def _data(given: argparse.Namespace, environment: Mapping[str, str]) -> Path:
    return _absolute(given.data) if given.data else options.data_of(environment)


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()
