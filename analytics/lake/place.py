"""LakePlace: where a lake is, and how its files become durable.

A lake is a directory, or a bucket that supports S3. In a directory, every file is synced before a
commit names it, and the commit is synced after it was made: delta-rs does neither.

A Parquet file is written under `_staging` of its table and moved to its final path right before the
commit that names it, so that a reader of `**/*.parquet` never sees the files of a killed writer.
S3 never shows a partly written object.

Two kinds of locks coordinate the processes of this machine. `LAKE` is held only during a commit.
`UPKEEP` (gold, maintenance, repairs) and `ingest_lock(broker)` are held while Parquet is written,
so that brokers and maintenance don't wait for each other. Acquire `LAKE` last.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.fs
import pyarrow.parquet as pq
from pyarrow.lib import ArrowException

from analytics.errors import LakeBusyError, LakeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import BinaryIO

BUCKET_PREFIX = "s3://"
OTHER_BUCKET_PREFIX = "s3a://"
FILE_SUFFIX = "_FILE"
SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
LAKE, UPKEEP = "lake", "upkeep"
FORMATS_VARIABLE = "TREBUCHET_LAKE_FORMATS"
DELTA, ICEBERG = "delta", "iceberg"
LOCK_SUFFIX = ".lock"
LOCK_FILE = LAKE + LOCK_SUFFIX
LOCK_SECONDS = 60.0
LOCK_AGAIN_SECONDS = 0.05
LOG = "_delta_log"
STAGING = "_staging"
# Readers of `**/*.parquet` ignore it.
STAGED_SUFFIX = ".writing"
REGION_DEFAULT = "us-east-1"


@dataclass(frozen=True, slots=True)
class LakePlace:
    """A lake's address. Holds no files: cluster tasks receive a copy.

    Attributes:
        uri: the directory, or `s3://bucket/prefix`.
        state: a directory on this machine for the lock and the status.
        access: the S3 settings, under AWS's names.
        has_iceberg: whether Iceberg tables are kept next to Delta's.
    """

    uri: str
    state: Path
    access: dict[str, str] = field(default_factory=dict, repr=False)
    has_iceberg: bool = False

    @classmethod
    def of(cls, text: str, state: Path | None, environment: Mapping[str, str]) -> LakePlace:
        """Return the place that a setting names.

        Raises:
            LakeError: the setting isn't valid, or the environment names an unknown format.
        """
        has_iceberg = ICEBERG in _formats(environment)
        text = text.strip().rstrip("/")
        if text.startswith(OTHER_BUCKET_PREFIX):
            text = BUCKET_PREFIX + text.removeprefix(OTHER_BUCKET_PREFIX)
        if not text.startswith(BUCKET_PREFIX):
            if not text or "://" in text:
                raise LakeError(
                    f"The lake {text!r} isn't a directory or an address such as s3://bucket/prefix."
                )
            path = Path(text).expanduser().absolute()
            return cls(str(path), state or path, has_iceberg=has_iceberg)
        if not text.removeprefix(BUCKET_PREFIX).split("/")[0]:
            raise LakeError("The lake's address has no bucket. Use s3://bucket/prefix.")
        if state is None:
            raise LakeError(
                "A lake in S3 needs a directory for its lock and status. Add --state DIR."
            )
        return cls(text, state, _access(environment), has_iceberg)

    @property
    def is_local(self) -> bool:
        return not self.uri.startswith(BUCKET_PREFIX)

    def table(self, name: str) -> str:
        """Return the address of a table: `bronze.messages` is in `bronze/messages`."""
        return f"{self.uri}/{name.replace('.', '/')}"

    def storage_options(self) -> dict[str, str] | None:
        """Return the options that delta-rs needs in addition to an address."""
        if self.is_local:
            return None
        endpoint = self.access.get("AWS_ENDPOINT_URL", "")
        known = {"AWS_REGION": REGION_DEFAULT, **self.access}
        return known | ({"AWS_ALLOW_HTTP": "true"} if endpoint.startswith("http://") else {})

    def filesystem(self) -> Any:
        """Return the pyarrow filesystem; its paths are those of `path_of`."""
        if self.is_local:
            return pyarrow.fs.LocalFileSystem()
        access = self.access
        scheme, _, endpoint = access.get("AWS_ENDPOINT_URL", "").rpartition("://")
        return pyarrow.fs.S3FileSystem(
            access_key=access.get("AWS_ACCESS_KEY_ID"),
            secret_key=access.get("AWS_SECRET_ACCESS_KEY"),
            session_token=access.get("AWS_SESSION_TOKEN"),
            region=access.get("AWS_REGION", REGION_DEFAULT),
            endpoint_override=endpoint or None,
            scheme=scheme or "https",
        )

    def path_of(self, name: str, path: str = "") -> str:
        """Return the path of a table's file for `filesystem`."""
        whole = f"{self.table(name)}/{path}".rstrip("/")
        return whole.removeprefix(BUCKET_PREFIX)

    @contextmanager
    def new_file(self, name: str, path: str) -> Iterator[BinaryIO]:
        """Open a new file of a table for writing; it is durable when the block ends.

        Call `publish` to move it to its final path. If the block fails, the file is deleted.
        """
        if not self.is_local:
            with self.filesystem().open_output_stream(self.path_of(name, path)) as stream:
                yield stream
            return
        staged = Path(self.staged(name, path))
        staged.parent.mkdir(parents=True, exist_ok=True)
        try:
            with staged.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            staged.unlink(missing_ok=True)
            raise

    def staged(self, name: str, path: str) -> str:
        """Return the path in `filesystem` of a new file before it is published."""
        if not self.is_local:
            return self.path_of(name, path)
        return self.path_of(name, f"{STAGING}/{Path(path).name}{STAGED_SUFFIX}")

    def publish(self, name: str, paths: Iterable[str]) -> None:
        """Move new files of a table to their final paths, durably.

        Raises:
            LakeBusyError: another process has deleted one of them.
        """
        if not self.is_local:
            return
        folders = set()
        for path in paths:
            target = Path(self.path_of(name, path))
            folders |= {each for each in target.parents if not each.exists()}
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                Path(self.staged(name, path)).rename(target)
            except FileNotFoundError as error:
                raise LakeBusyError(
                    f"{self.staged(name, path)} was deleted during a write to the lake. The "
                    "next run writes it again."
                ) from error
            folders.add(target.parent)
        for directory in folders | {each.parent for each in folders}:
            sync_directory(directory)

    def discard(self, name: str, paths: Iterable[str]) -> None:
        """Delete new files of a table that won't be published."""
        for path in paths:
            self._delete(self.staged(name, path))

    def clear_staging(self, name: str, older_than_seconds: float = 0.0) -> int:
        """Delete the files of killed writers in a table's staging directory; return the count."""
        if not self.is_local:
            return 0
        limit = time.time_ns() / 1e9 - older_than_seconds
        left = [
            path
            for path in Path(self.path_of(name, STAGING)).glob(f"*{STAGED_SUFFIX}")
            if path.stat().st_mtime <= limit
        ]
        for path in left:
            path.unlink(missing_ok=True)
        return len(left)

    def _delete(self, path: str) -> None:
        if self.is_local:
            Path(path).unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError):
            self.filesystem().delete_file(path)

    def sync_log(self, name: str) -> None:
        """Make a table's newest commit and checkpoint durable."""
        if not self.is_local:
            return
        log = Path(self.table(name)) / LOG
        newest = sorted(log.glob("*.json"))[-1:] + sorted(log.glob("*.parquet"))[-1:]
        for path in (*newest, log / "_last_checkpoint"):
            if path.exists():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        sync_directory(log)

    def repair_log(self, name: str) -> list[str]:
        """Delete the parts of a table's log that a power cut left half written; return the file
        names.

        No reader can have seen such a commit, so it is safe to write it again.
        """
        log = Path(self.table(name)) / LOG
        if not self.is_local or not log.is_dir():
            return []
        commits = sorted(log.glob("*.json"))
        torn = [path for path in commits[-1:] if not _is_commit(path)]
        checkpoints = [path for path in log.glob("*.parquet") if not _is_parquet(path)]
        if checkpoints:
            torn += [*checkpoints, log / "_last_checkpoint"]
        for path in torn:
            path.unlink(missing_ok=True)
        if torn:
            sync_directory(log)
        return [path.name for path in torn]

    @contextmanager
    def locked(self, name: str = LAKE, wait_seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Hold a lock against other processes of this machine until the block ends.

        Reentrant in the same thread.

        Raises:
            LakeBusyError: another process held the lock past the timeout.
            LakeError: the state directory isn't writable.
        """
        key = (self.state / (name + LOCK_SUFFIX), threading.get_ident())
        if key in _own_locks:
            yield
            return
        descriptor = self._lock(key[0], wait_seconds)
        _own_locks.add(key)
        try:
            yield
        finally:
            _own_locks.discard(key)
            os.close(descriptor)

    def _lock(self, path: Path, wait_seconds: float) -> int:
        try:
            self.state.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as error:
            raise LakeError(
                f"The lake's state directory {self.state} isn't writable: {error.strerror}. Check "
                "its owner and mode, then try again."
            ) from error
        give_up = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    os.close(descriptor)
                    raise LakeBusyError(
                        f"Another process has been working on the lake {self.uri} for "
                        f"{wait_seconds:.0f} s. Try again later."
                    ) from None
                time.sleep(LOCK_AGAIN_SECONDS)
            else:
                return descriptor


_own_locks: set[tuple[Path, int]] = set()
"""The locks that this process holds, by the thread that acquired them."""


def ingest_lock(broker: str) -> str:
    """Return the name of the lock for ingesting a broker's log."""
    return f"ingest-{broker.replace('%', '%25').replace('|', '%7C')}"


def _formats(environment: Mapping[str, str]) -> set[str]:
    """Raise LakeError if the environment names unknown formats or no format."""
    text = environment.get(FORMATS_VARIABLE, "").strip().lower() or DELTA
    named = {each.strip() for each in text.split(",")}
    if DELTA not in named or not named <= {DELTA, ICEBERG}:
        raise LakeError(f"{FORMATS_VARIABLE} is {text!r}; it must be delta or delta,iceberg.")
    return named


def _access(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the S3 settings from the environment; a secret may be in a file."""
    found = {name: value for name, value in environment.items() if name.startswith("AWS_")}
    for name in [name + FILE_SUFFIX for name in SECRETS if name + FILE_SUFFIX in found]:
        path = Path(found.pop(name))
        try:
            found[name.removesuffix(FILE_SUFFIX)] = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise LakeError(
                f"{name} names the file {path}, which can't be read. It must be a text file that "
                "this user can read."
            ) from error
    return {name: value for name, value in found.items() if value}


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_commit(path: Path) -> bool:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False


def _is_parquet(path: Path) -> bool:
    try:
        pq.read_metadata(path)
    except (ArrowException, OSError):
        return False
    return True
