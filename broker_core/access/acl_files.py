"""The account files: plain_acl.yml, and every *.yml or *.yaml in `acl/` next to it.

The first file that names an account owns it: files below `acl/` are read first, ordered by name,
then plain_acl.yml, which receives new accounts. AclFiles rereads a changed file within five
seconds; while a file can't be read, the old accounts remain in effect. Reading a file that other
users may read or change logs a WARNING.

Source: acl/plain/PlainPermissionManager.java, srvutil/AclFileWatchService.java (4.9.7). As in
RocketMQ, a change over the wire removes a file's comments.
Differs: a write replaces the file atomically, and only its owner may read it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from broker_core.access.account import (
    Account,
    build_account,
    check_keys,
    check_resources,
    lines_of,
    text_of,
)
from broker_core.access.address_rule import parse_rule
from broker_core.config.exposure import exposure
from broker_core.errors import StoreError
from broker_core.formats.paths import is_system_entry
from broker_core.message.data_version import DataVersion
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from broker_core.access.address_rule import AddressRule
    from broker_core.clock import Clock
    from broker_core.storage import Storage

logger = logging.getLogger(__name__)

WATCH_S = 5.0
FILE_BYTES_MAX = 1 << 20
FILES_MAX = 1000
DIRECTORY_DEPTH_MAX = 8
DIRECTORY = "acl"
TOOLS_FILE = "tools.yml"
"""Credentials of mqadmin, not accounts."""

ACCOUNTS = "accounts"
GLOBAL_WHITE_ADDRESSES = "globalWhiteRemoteAddresses"
DATA_VERSION = "dataVersion"
WRITTEN = (
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
)
"""The fields of an account in a request, except its keys."""


@dataclass(frozen=True, slots=True)
class AccessState:
    """The accounts of all files. Immutable: each change makes a new state."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    global_white: tuple[AddressRule, ...] = ()
    global_white_texts: tuple[str, ...] = ()
    global_white_of: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)
    """The global white addresses by file."""
    owners: Mapping[str, Path] = field(default_factory=dict)
    """access key -> the file that names it."""
    entries: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """The accounts as stored in the files, including secrets."""
    versions: Mapping[Path, DataVersion] = field(default_factory=dict)


class AclFiles(Service):
    """Reads, watches and changes the files. Event loop only; `refresh` reads in a thread.

    Attributes:
        state: the current accounts.
        path: plain_acl.yml.
    """

    def __init__(self, path: Path, clock: Clock, storage: Storage) -> None:
        super().__init__()
        self.path = path
        self.state = AccessState()
        self._clock = clock
        self._storage = storage
        self._texts: dict[Path, bytes] = {}
        self._read_at_ms: dict[Path, int] = {}
        self._exposed: dict[Path, str] = {}
        self._problem = ""

    def load(self) -> None:
        """Read all files.

        Raises:
            StoreError: a file can't be read, or isn't a valid account file.
        """
        texts, exposed = self._look()
        self._warn_of(exposed, among=texts)
        try:
            self._take(texts)
        except ValueError as error:
            raise StoreError(str(error)) from error
        if not self.state.accounts and not self.state.global_white:
            logger.warning(
                "access control without accounts, all requests are refused file=%s",
                self.path,
            )

    def start(self) -> None:
        self.spawn_forever(self._clock, self._watch_forever, name="acl-files")

    async def refresh(self) -> bool:
        """Read the files again; return whether anything changed."""
        before = self._texts
        try:
            texts, exposed = await asyncio.to_thread(self._look)
            if self._texts is not before:
                return False
            self._warn_of(
                exposed,
                among=[path for path in texts if texts[path] != before.get(path)],
            )
            if texts == before:
                self._problem = ""
                return False
            self._change(texts)
        except (StoreError, ValueError) as error:
            if str(error) != self._problem:
                logger.warning("accounts not reloaded, using the old ones reason=%s", error)
            self._problem = str(error)
            return False
        self._problem = ""
        logger.info("accounts loaded files=%d accounts=%d", len(texts), len(self.state.accounts))
        return True

    def put_account(self, wanted: Mapping[str, Any], *, is_whole: bool = False) -> None:
        """Add an account, or change the given fields of an existing one.

        With `is_whole` an existing account keeps its secret unless a new one is given; all other
        fields of `WRITTEN` that aren't given are removed.

        Raises:
            ValueError: the account isn't valid.
        """
        access_key = text_of(wanted.get("accessKey"))
        known = self.state.accounts.get(access_key or "")
        if is_whole and known is not None and wanted.get("secretKey") is None:
            wanted = {**wanted, "secretKey": known.secret_key}
        check_keys(access_key, text_of(wanted.get("secretKey")))
        for key in ("topicPerms", "groupPerms"):
            check_resources(lines_of(wanted.get(key), key))
        build_account(wanted)
        given = {key: value for key, value in wanted.items() if value is not None}
        dropped = {key for key in WRITTEN if key not in given} if is_whole else set()
        is_new = access_key not in self.state.owners
        path = self.path if is_new else self.state.owners[access_key or ""]
        document = self._document(path)
        entries = [
            {**{key: entry[key] for key in entry if key not in dropped}, **given}
            if text_of(entry.get("accessKey")) == access_key
            else entry
            for entry in _entries(document, path)
        ]
        if is_new:
            entries.append(given)
        self._write(path, {**document, ACCOUNTS: entries})

    def delete_account(self, access_key: str) -> bool:
        """Delete an account; False if no account has this key."""
        path = self.state.owners.get(access_key)
        if path is None:
            return False
        document = self._document(path)
        entries = [
            entry
            for entry in _entries(document, path)
            if text_of(entry.get("accessKey")) != access_key
        ]
        self._write(path, {**document, ACCOUNTS: entries})
        return True

    def set_global_white_addresses(self, addresses: Sequence[str], path: Path | None) -> None:
        """Replace one file's list of addresses whose requests need no account.

        Raises:
            ValueError: an address isn't valid, or the path isn't an account file.
        """
        target = self.path if path is None else path
        if target != self.path and target not in self._texts:
            raise ValueError(f"{target} is not an account file")
        for address in addresses:
            parse_rule(address)
        self._write(target, {**self._document(target), GLOBAL_WHITE_ADDRESSES: list(addresses)})

    def _document(self, path: Path) -> dict[str, Any]:
        # Read again, because the file may have been edited since the last check.
        return _parse(path, self._storage.read(path) or b"")

    def _write(self, path: Path, document: dict[str, Any]) -> None:
        now_ms = self._clock.now_ms()
        version = _version(document, now_ms).next(now_ms)
        document[DATA_VERSION] = [{"counter": version.counter, "timestamp": version.timestamp}]
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode()
        if len(text) > FILE_BYTES_MAX:
            raise ValueError(f"{path} would have more than {FILE_BYTES_MAX} bytes")
        texts = {**self._texts, path: text}
        _parse_all(texts, self.path, self._read_times(texts))
        self._storage.make_directory(path.parent)
        self._storage.write_atomically(path, text)
        self._change(texts)

    def _take(self, texts: dict[Path, bytes]) -> None:
        """Make the accounts of these files current.

        Raises:
            ValueError: a file isn't valid; the old accounts remain in effect.
        """
        read_at_ms = self._read_times(texts)
        self.state = _parse_all(texts, self.path, read_at_ms)
        self._texts, self._read_at_ms = texts, read_at_ms

    def _change(self, texts: dict[Path, bytes]) -> None:
        """Make changed file texts current, and log each account that changes.

        Raises:
            ValueError: as `_take`.
        """
        before = self.state
        self._take(texts)
        for line in changes(before, self.state):
            logger.warning("accounts changed changes=%s", line)

    def _read_times(self, texts: Mapping[Path, bytes]) -> dict[Path, int]:
        """Return when each file's current text was first read (ms), always with plain_acl.yml."""
        now_ms = self._clock.now_ms()
        return {
            path: self._read_at_ms.get(path, now_ms)
            if texts.get(path) == self._texts.get(path)
            else now_ms
            for path in {*texts, self.path}
        }

    def _warn_of(self, exposed: dict[Path, str], among: Collection[Path]) -> None:
        """Warn of exposed files: the newly read files in `among`, and files with new warnings."""
        for path, warning in exposed.items():
            if path in among or self._exposed.get(path) != warning:
                logger.warning("%s", warning)
        self._exposed = exposed

    def _look(self) -> tuple[dict[Path, bytes], dict[Path, str]]:
        """Return the texts of all files, and the warnings about exposed ones."""
        texts = self._read_all()
        exposed = {}
        for path in texts:
            found = self._storage.permissions(path)
            warning = exposure(path, *found) if found is not None else None
            if warning is not None:
                exposed[path] = warning
        return texts, exposed

    def _read_all(self) -> dict[Path, bytes]:
        texts = {}
        for path in [*self._walk(self.path.parent / DIRECTORY, DIRECTORY_DEPTH_MAX), self.path]:
            try:
                text = self._storage.read(path)
            except OSError as error:
                raise StoreError(f"{path} cannot be read: {error.strerror}") from error
            if text is None:
                continue
            if len(text) > FILE_BYTES_MAX:
                raise StoreError(f"{path} has more than {FILE_BYTES_MAX} bytes")
            texts[path] = text
            if len(texts) > FILES_MAX:
                raise StoreError(f"{path.parent} has more than {FILES_MAX} account files")
        return texts

    def _walk(self, directory: Path, depth: int) -> Iterator[Path]:
        if depth == 0 or not self._storage.is_directory(directory):
            return
        for name in self._storage.list_directory(directory):
            path = directory / name
            if is_system_entry(name):
                continue
            if name.endswith((".yml", ".yaml")):
                if name != TOOLS_FILE:
                    yield path
            else:
                yield from self._walk(path, depth - 1)

    async def _watch_forever(self) -> None:
        while True:
            await self._clock.sleep(WATCH_S)
            await self.refresh()


def changes(before: AccessState, after: AccessState) -> Iterator[str]:
    """Yield a line for each added, removed or changed account: names of fields, never values."""
    old, new = (
        {text_of(entry.get("accessKey")): entry for entry in state.entries}
        for state in (before, after)
    )
    for access_key in sorted({*old, *new}, key=str):
        was, is_now = old.get(access_key), new.get(access_key)
        if was is None or is_now is None:
            yield f"access_key={access_key} {'removed' if is_now is None else 'added'}"
            continue
        fields = [key for key in sorted({*was, *is_now}) if was.get(key) != is_now.get(key)]
        if fields:
            yield f"access_key={access_key} changed={','.join(fields)}"
    if before.global_white_texts != after.global_white_texts:
        yield f"{GLOBAL_WHITE_ADDRESSES}={','.join(after.global_white_texts)}"


def _parse_all(
    texts: Mapping[Path, bytes], default: Path, read_at_ms: Mapping[Path, int]
) -> AccessState:
    accounts: dict[str, Account] = {}
    owners: dict[str, Path] = {}
    white: dict[Path, tuple[str, ...]] = {}
    entries: list[Mapping[str, Any]] = []
    versions = {default: DataVersion(timestamp=read_at_ms[default])}
    for path in sorted(texts, key=lambda one: (one == default, one)):
        document = _parse(path, texts[path])
        versions[path] = _version(document, read_at_ms[path])
        white[path] = tuple(lines_of(document.get(GLOBAL_WHITE_ADDRESSES), GLOBAL_WHITE_ADDRESSES))
        for entry in _entries(document, path):
            try:
                account = build_account(entry)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
            if account.access_key in owners:
                logger.warning(
                    "duplicate account ignored access_key=%r file=%s",
                    account.access_key,
                    path,
                )
                continue
            accounts[account.access_key] = account
            owners[account.access_key] = path
            entries.append(entry)
    texts_of_white = tuple(text for each in white.values() for text in each)
    rules = tuple(parse_rule(text) for text in texts_of_white)
    return AccessState(accounts, rules, texts_of_white, white, owners, tuple(entries), versions)


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        # The YAML error quotes the line, which may contain a secret.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise ValueError(f"{path} is not YAML{where}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError(f"{path} is not a YAML table")
    return document


def _entries(document: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    entries = document.get(ACCOUNTS) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path}: {ACCOUNTS} is not a list of accounts")
    return entries


def _version(document: Mapping[str, Any], read_at_ms: int) -> DataVersion:
    """Return the version in a file; if it isn't valid, counter 0 and `read_at_ms`."""
    versions = document.get(DATA_VERSION)
    unchanged = DataVersion(timestamp=read_at_ms)
    if not isinstance(versions, list) or not versions:
        return unchanged
    try:
        return DataVersion(
            counter=int(versions[0].get("counter", 0)),
            timestamp=int(versions[0].get("timestamp", 0)),
        )
    except (AttributeError, TypeError, ValueError):
        return unchanged
