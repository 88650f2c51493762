"""The part of deploy/restore that runs inside .venv: creates a data directory from a backup.

All files are read into `.restoring` in the data directory and checked there, then moved into place.
`deploy/up` rejects a directory with an unfinished restore.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from broker_core.config.properties import replace_values
from broker_core.formats.paths import is_system_entry
from broker_core.storage import FileStorage
from broker_core.store.runtime_info import size_text
from deploy.archive import low_priority_copy, options, source as backup_source, target
from deploy.archive.manifest import BackupError
from deploy.archive.progress import Progress
from deploy.brokers import cluster, slave
from deploy.machine import data_directory
from deploy.terminal.output import complain, say
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from deploy.archive.manifest import Manifest

DONE, NOT_DONE = 0, 2
PROBLEMS_SHOWN = 20
LOCK_ENTRIES = ("appliance.lock", "logs", "run", "redis")
"""Entries that holding a data directory creates in it."""


class _StopSignal(BaseException):
    """A signal arrived. Not an Exception, so that no handler swallows it."""


def restore(source: Path, data: Path) -> Manifest:
    """Create a data directory from a backup; return its manifest.

    Raises:
        BackupError: the backup is damaged, or the directory isn't empty; the directory is
            unchanged.
        NotStartedError: an appliance uses the directory, or it can't be created.
        OSError: a file can't be read or written; the directory is unchanged.
    """
    if not source.exists():
        raise BackupError(translated("The backup {path} doesn't exist.", path=source))
    _require_empty(data)
    was_there = data.is_dir()
    _require_room(source, data)
    staging = data / data_directory.RESTORING
    with data_directory.lock(data):
        staging.mkdir(mode=0o700)
        try:
            manifest = _read(source, staging)
            _finish(manifest, staging, data)
            names = sorted(os.listdir(staging))  # noqa: PTH208  names are enough
            _hand_over(manifest.owner, data)
            FileStorage().sync_file_system(data)
        except BaseException:
            _empty(data, was_there=was_there)
            raise
        # If killed from here on, `.restoring` remains and stops an appliance from using a partial
        # restore.
        for name in names:
            (staging / name).rename(data / name)
        staging.rmdir()
        FileStorage().sync_directory(data)
    return manifest


def _read(source: Path, staging: Path) -> Manifest:
    progress = Progress(backup_source.stored_bytes(source))

    def take(path: str, pieces: Iterator[bytes]) -> None:
        file = staging / path
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sink = low_priority_copy.Sink(os.open(file, target.NEW, 0o600))
        try:
            for piece in pieces:
                sink.write(piece)
                progress.add(len(piece))
        finally:
            sink.close()

    try:
        contents = backup_source.read(source, take)
    finally:
        progress.end()
    if contents.problems:
        shown = contents.problems[:PROBLEMS_SHOWN]
        more = len(contents.problems) - len(shown)
        if more:
            shown.append(translated("and {count} more", count=more))
        raise BackupError(
            translated("The backup {path} is damaged; nothing was restored:", path=source)
            + "".join(f"\n  {problem}" for problem in shown)
        )
    return contents.manifest


def _finish(manifest: Manifest, staging: Path, data: Path) -> None:
    """Set lengths, modes and times of files; update paths in configurations."""
    for entry in manifest.files:
        file = staging / entry.path
        if entry.size != entry.stored:
            os.truncate(file, entry.size)
        file.chmod(entry.mode)
        os.utime(file, ns=(entry.modified_ns, entry.modified_ns))
    for edit in manifest.edits:
        file = staging / edit.file
        places = {key: slave.escaped(str(data / place)) for key, place in edit.keys.items()}
        text = replace_values(file.read_text(encoding="utf-8", errors="replace"), places)
        file.write_text(text, encoding="utf-8")


def _hand_over(owner: str, data: Path) -> None:
    """Make the original user, if one with that name exists here, the owner of files that root
    restores.
    """
    if os.geteuid() != 0:
        return
    try:
        user = pwd.getpwnam(owner)
    except KeyError:
        # deploy/up hands root's files over to the user that it creates.
        return
    for where, directories, files in os.walk(data):
        directories[:] = [name for name in directories if not is_system_entry(name)]
        for name in (*directories, *files):
            os.chown(Path(where, name), user.pw_uid, user.pw_gid, follow_symlinks=False)
    os.chown(data, user.pw_uid, user.pw_gid)


def _require_empty(data: Path) -> None:
    if not data.is_dir():
        return
    names = {name for name in os.listdir(data) if not is_system_entry(name)}  # noqa: PTH208  names are enough
    if data_directory.LOCK in names:
        # Raises an error that names the current user of the directory.
        with data_directory.lock(data):
            pass
    if names:
        raise BackupError(
            translated(
                "{data} isn't empty. Restore into a new directory (--data), or move its "
                "contents away.",
                data=data,
            )
        )


def _require_room(source: Path, data: Path) -> None:
    needed = backup_source.stored_bytes(source)
    there = next(each for each in (data, *data.parents) if each.is_dir())
    _, free = FileStorage().disk_usage(there)
    if needed > free:
        raise BackupError(
            translated(
                "{path} needs {needed}, but only {free} are free.",
                path=data,
                needed=size_text(needed),
                free=size_text(free),
            )
        )


def _empty(data: Path, *, was_there: bool) -> None:
    """Delete the files of a failed restore."""
    for name in (data_directory.RESTORING, *LOCK_ENTRIES):
        path = data / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if not was_there:
        data.rmdir()


def start_command(manifest: Manifest, data: Path) -> str:
    """Return the command that starts an appliance on the restored directory."""
    processes = [one.process for one in manifest.brokers]
    masters = [name for name in processes if not slave.is_slave_process(name)]
    words = [f"deploy/up --data {shlex.quote(str(data))}"]
    if manifest.has_lake:
        words.append("--lake")
    if masters != [cluster.FIRST]:
        words.append(f"--brokers {len(masters)}")
    if len(masters) < len(processes):
        words.append("--slave")
    return " ".join(words)


def main(arguments: Sequence[str]) -> int:
    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise _StopSignal

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    os.umask(0o077)
    asked = options.parse_restore(arguments)
    try:
        manifest = restore(asked.source, asked.data)
    except (BackupError, data_directory.NotStartedError) as error:
        complain(str(error))
        return NOT_DONE
    except OSError as error:
        where = error.filename or translated("the disk")
        complain(translated("{where}: {why}.", where=where, why=error.strerror or error))
        return NOT_DONE
    except _StopSignal:
        complain(translated("Stopped; all partial files were deleted."))
        return NOT_DONE
    say(
        translated(
            "{data} is restored to its state of {made_at}.",
            data=asked.data,
            made_at=manifest.made_at,
        )
    )
    for sentence in manifest.left_out:
        complain(translated("WARNING not included: {what}", what=sentence))
    say(translated("To start it, run: {command}", command=start_command(manifest, asked.data)))
    say(translated("The first start reads the whole log to check it and build the index."))
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
