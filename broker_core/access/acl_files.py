"""The files of accounts: plain_acl.yml, and every *.yml or *.yaml below `acl/` beside it.

An account is of the file that names it first: those below `acl/` in the order of their names, then
plain_acl.yml, to which new accounts are added. Files that change are read again within five
seconds; when one cannot be read, what was known before stays in force.

Source: acl/plain/PlainPermissionManager.java, srvutil/AclFileWatchService.java (4.9.7).
Differs: comments in a file are lost when it is changed over the wire, as in the original, but the
file is replaced in one step, and only its owner may read it.
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
from broker_core.errors import StoreError
from broker_core.message.data_version import DataVersion
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class AccessState:
    """What the files say. Immutable: another takes its place when one of them changes."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    global_white: tuple[AddressRule, ...] = ()
    global_white_texts: tuple[str, ...] = ()
    owners: Mapping[str, Path] = field(default_factory=dict)
    """access key -> the file that names it."""
    entries: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """The accounts as the files hold them, secrets included."""
    versions: Mapping[Path, DataVersion] = field(default_factory=dict)


class AclFiles(Service):
    """Read, watch and change the files. Event loop only; reading while it runs is done in a thread.

    Attributes:
        state: what is in force.
        path: plain_acl.yml.
    """

    def __init__(self, path: Path, clock: Clock, storage: Storage) -> None:
        super().__init__()
        self.path = path
        self.state = AccessState()
        self._clock = clock
        self._storage = storage
        self._texts: dict[Path, bytes] = {}
        self._problem = ""

    def load(self) -> None:
        """Read all files.

        Raises:
            StoreError: one cannot be read, or says what makes no sense.
        """
        texts = self._read_all()
        try:
            self.state = _parse_all(texts, self.path)
        except ValueError as error:
            raise StoreError(str(error)) from error
        self._texts = texts
        if not self.state.accounts and not self.state.global_white:
            logger.warning(
                "access control is on and no account is known: every request is refused until "
                "there is one in %s",
                self.path,
            )

    def start(self) -> None:
        self.spawn(self._watch_forever(), name="acl-files")

    async def refresh(self) -> bool:
        """Read the files; True when what they say took force."""
        before = self._texts
        try:
            texts = await asyncio.to_thread(self._read_all)
            if self._texts is not before or texts == before:
                return False
            self._texts = texts
            self.state = _parse_all(texts, self.path)
        except (StoreError, ValueError) as error:
            if str(error) != self._problem:
                logger.warning("accounts are not read again, the old ones stay: %s", error)
            self._problem = str(error)
            return False
        self._problem = ""
        logger.info("accounts read: files=%d accounts=%d", len(texts), len(self.state.accounts))
        return True

    def put_account(self, wanted: Mapping[str, Any]) -> None:
        """Add an account, or change those of its fields that are given.

        Raises:
            ValueError: it is none that may be.
        """
        access_key = text_of(wanted.get("accessKey"))
        check_keys(access_key, text_of(wanted.get("secretKey")))
        for key in ("topicPerms", "groupPerms"):
            check_resources(lines_of(wanted.get(key), key))
        build_account(wanted)
        given = {key: value for key, value in wanted.items() if value is not None}
        is_new = access_key not in self.state.owners
        path = self.path if is_new else self.state.owners[access_key or ""]
        document = self._document(path)
        entries = [
            {**entry, **given} if text_of(entry.get("accessKey")) == access_key else entry
            for entry in _entries(document, path)
        ]
        if is_new:
            entries.append(given)
        self._write(path, {**document, ACCOUNTS: entries})

    def delete_account(self, access_key: str) -> bool:
        """Take an account away; False when there is none of that key."""
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
        """Replace the addresses from which everything is allowed, in one of the known files.

        Raises:
            ValueError: an address or the file is none.
        """
        target = self.path if path is None else path
        if target != self.path and target not in self._texts:
            raise ValueError(f"{target} is no file of accounts")
        for address in addresses:
            parse_rule(address)
        self._write(target, {**self._document(target), GLOBAL_WHITE_ADDRESSES: list(addresses)})

    def _document(self, path: Path) -> dict[str, Any]:
        # Not what was read last: someone may just have edited the file.
        return _parse(path, self._storage.read(path) or b"")

    def _write(self, path: Path, document: dict[str, Any]) -> None:
        version = _version(document).next(self._clock.now_ms())
        document[DATA_VERSION] = [{"counter": version.counter, "timestamp": version.timestamp}]
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode()
        if len(text) > FILE_BYTES_MAX:
            raise ValueError(f"{path} would have more than {FILE_BYTES_MAX} bytes")
        texts = {**self._texts, path: text}
        state = _parse_all(texts, self.path)
        self._storage.make_directory(path.parent)
        self._storage.write_atomically(path, text)
        self._texts, self.state = texts, state

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
                raise StoreError(f"{path.parent} has more than {FILES_MAX} files of accounts")
        return texts

    def _walk(self, directory: Path, depth: int) -> Iterator[Path]:
        if depth == 0 or not self._storage.is_directory(directory):
            return
        for name in self._storage.list_directory(directory):
            path = directory / name
            if name.endswith((".yml", ".yaml")):
                if name != TOOLS_FILE:
                    yield path
            else:
                yield from self._walk(path, depth - 1)

    async def _watch_forever(self) -> None:
        while True:
            await self._clock.sleep(WATCH_S)
            await self.refresh()


def _parse_all(texts: Mapping[Path, bytes], default: Path) -> AccessState:
    accounts: dict[str, Account] = {}
    owners: dict[str, Path] = {}
    white: list[str] = []
    entries: list[Mapping[str, Any]] = []
    versions: dict[Path, DataVersion] = {default: DataVersion()}
    for path in sorted(texts, key=lambda one: (one == default, one)):
        document = _parse(path, texts[path])
        versions[path] = _version(document)
        white.extend(lines_of(document.get(GLOBAL_WHITE_ADDRESSES), GLOBAL_WHITE_ADDRESSES))
        for entry in _entries(document, path):
            try:
                account = build_account(entry)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
            if account.access_key in owners:
                logger.warning(
                    "account named twice, the later one is left out: access_key=%r file=%s",
                    account.access_key,
                    path,
                )
                continue
            accounts[account.access_key] = account
            owners[account.access_key] = path
            entries.append(entry)
    rules = tuple(parse_rule(text) for text in white)
    return AccessState(accounts, rules, tuple(white), owners, tuple(entries), versions)


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        # The error itself quotes the line, which may hold a secret.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise ValueError(f"{path} is no YAML{where}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError(f"{path} is no table of YAML")
    return document


def _entries(document: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    entries = document.get(ACCOUNTS) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path}: {ACCOUNTS} is no list of accounts")
    return entries


def _version(document: Mapping[str, Any]) -> DataVersion:
    versions = document.get(DATA_VERSION)
    first = versions[0] if isinstance(versions, list) and versions else {}
    try:
        return DataVersion(
            counter=int(first.get("counter", 0)), timestamp=int(first.get("timestamp", 0))
        )
    except (AttributeError, TypeError, ValueError):
        return DataVersion()
