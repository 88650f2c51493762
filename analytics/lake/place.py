"""LakePlace: where a lake is, and how its files become durable there.

A directory, or a bucket that speaks S3. On a directory every file is synced before a commit names
it, and the commit itself after it was made: delta-rs does neither.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.fs
import pyarrow.parquet as pq
from pyarrow.lib import ArrowException

from analytics.errors import LakeBusyError, LakeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

BUCKET_PREFIX = "s3://"
OTHER_BUCKET_PREFIX = "s3a://"
FILE_SUFFIX = "_FILE"
SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
LOCK_FILE = "lake.lock"
LOCK_SECONDS = 60.0
LOCK_AGAIN_SECONDS = 0.05
LOG = "_delta_log"
REGION_DEFAULT = "us-east-1"


@dataclass(frozen=True, slots=True)
class LakePlace:
    """A lake's address. Holds no files: tasks of a cluster are given a copy.

    Attributes:
        uri: the directory, or `s3://bucket/prefix`.
        state: a directory of this machine for the lock and the status.
        access: what S3 needs to know, by the names of AWS.
    """

    uri: str
    state: Path
    access: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, text: str, state: Path | None, environment: Mapping[str, str]) -> LakePlace:
        """Return the place that a setting names.

        Raises:
            LakeError: it names none.
        """
        text = text.strip().rstrip("/")
        if text.startswith(OTHER_BUCKET_PREFIX):
            text = BUCKET_PREFIX + text.removeprefix(OTHER_BUCKET_PREFIX)
        if not text.startswith(BUCKET_PREFIX):
            if not text or "://" in text:
                raise LakeError(f"The lake {text!r} is neither a directory nor s3://bucket/prefix.")
            path = Path(text).expanduser().absolute()
            return cls(str(path), state or path)
        if not text.removeprefix(BUCKET_PREFIX).split("/")[0]:
            raise LakeError("The lake s3:// names no bucket: it must be s3://bucket/prefix.")
        if state is None:
            raise LakeError("A lake in S3 needs a directory for its lock and status: --state DIR.")
        return cls(text, state, _access(environment))

    @property
    def is_local(self) -> bool:
        return not self.uri.startswith(BUCKET_PREFIX)

    def table(self, name: str) -> str:
        """Return the address of a table, `bronze.messages` being in `bronze/messages`."""
        return f"{self.uri}/{name.replace('.', '/')}"

    def storage_options(self) -> dict[str, str] | None:
        """Return what delta-rs needs besides an address."""
        if self.is_local:
            return None
        endpoint = self.access.get("AWS_ENDPOINT_URL", "")
        known = {"AWS_REGION": REGION_DEFAULT, **self.access}
        return known | ({"AWS_ALLOW_HTTP": "true"} if endpoint.startswith("http://") else {})

    def filesystem(self) -> Any:
        """Return pyarrow's way to the files; paths there are those of `path_of`."""
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
        """Open a new file of a table for writing; it is durable when the block ends."""
        if not self.is_local:
            with self.filesystem().open_output_stream(self.path_of(name, path)) as stream:
                yield stream
            return
        target = Path(self.path_of(name, path))
        made = [each for each in (target.parent, *target.parent.parents) if not each.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        for directory in {target.parent, *(each.parent for each in made)}:
            sync_directory(directory)

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

    def mend(self, name: str) -> list[str]:
        """Take away what a power cut left half written of a log; return the names of the files.

        Nobody can have read such a commit: what it said is said again.
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
    def locked(self, wait_seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Keep other processes of this machine from the lake until the block ends.

        Raises:
            LakeBusyError: another one works on it for longer than that.
            LakeError: the directory of the state cannot be written.
        """
        try:
            self.state.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.state / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as error:
            raise LakeError(f"{self.state} cannot be written: {error.strerror}.") from error
        try:
            give_up = time.monotonic() + wait_seconds
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= give_up:
                        raise LakeBusyError(
                            f"Another process has been working on the lake {self.uri} for "
                            f"{wait_seconds:.0f} s: try again later."
                        ) from None
                    time.sleep(LOCK_AGAIN_SECONDS)
            yield
        finally:
            os.close(descriptor)


def _access(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the environment says of S3; a secret may be in a file."""
    found = {name: value for name, value in environment.items() if name.startswith("AWS_")}
    for name in [name + FILE_SUFFIX for name in SECRETS if name + FILE_SUFFIX in found]:
        path = Path(found.pop(name))
        try:
            found[name.removesuffix(FILE_SUFFIX)] = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise LakeError(f"{path}, which {name} names, cannot be read.") from error
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
