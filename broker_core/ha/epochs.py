"""Epochs: which masters wrote which part of the log, stored in `epoch.json`.

An epoch is the term of one master: a number, and the log offset at which it began. A log
without epochs was written in epoch 0, which begins at offset 0. A promotion begins an epoch before
the first message of the new master; a slave adopts the epochs of the master that it follows. So two
logs whose epochs agree up to an offset were written by the same masters up to that offset.

::

    {"epochs": [{"epoch": 1, "startOffset": 4096}],
     "role": {"brokerRole": "ASYNC_MASTER", "brokerId": 0,         the role after a promotion, or
              "configuredRole": "SLAVE", "configuredId": 1,        after the loss of mastership
              "formerId": 1},
     "cutAt": 4000,                           where the next start cuts the log, saved aside before
     "peers": ["10.0.0.2:10911"]}             brokers that asked for the epochs: slaves of the set

The role applies as long as the configured role and ID in the configuration file are unchanged.

The file is replaced atomically and durably. If it can't be read, the broker doesn't start, because
without its epochs it could act as a second master.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from broker_core.errors import StoreError
from broker_core.ha.role import BrokerRole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from broker_core.storage import Storage

FIRST_EPOCH = 0
PEERS_MAX = 16
EPOCHS_MAX = 10_000
"""The limit for epochs from a peer; one per failover is far fewer."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Epoch(msgspec.Struct, frozen=True, rename="camel"):
    """The term of one master, which wrote the log from start_offset on."""

    epoch: Natural
    start_offset: Natural


class AssignedRole(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The role that replaces the configured one while the configuration file is unchanged."""

    broker_role: BrokerRole
    broker_id: Natural
    configured_role: str
    configured_id: int
    former_id: Natural | None = None
    """The previous ID of a promoted master, which the old master may use."""


class EpochDocument(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The content of epoch.json."""

    epochs: tuple[Epoch, ...] = ()
    role: AssignedRole | None = None
    cut_at: Natural | None = None
    peers: tuple[str, ...] = ()


class LogRange(NamedTuple):
    """The epochs of a log and the range of offsets that it holds."""

    epochs: tuple[Epoch, ...]
    min_offset: int
    max_offset: int


class Epochs:
    """One broker's epoch.json. Each change is durable when the call returns."""

    def __init__(self, path: Path, storage: Storage) -> None:
        self._path = path
        self._storage = storage
        self._document = EpochDocument()

    def load(self) -> None:
        """Read the file; a missing file means epoch 0.

        Raises:
            StoreError: it can't be read, or its epochs are out of order.
        """
        try:
            data = self._storage.read(self._path)
        except NotADirectoryError:
            # The store reports errors of its directory.
            data = None
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}") from error
        if data is None:
            self._document = EpochDocument()
            return
        try:
            document = msgspec.json.decode(data, type=EpochDocument)
            check_order(document.epochs)
        except (ValueError, RecursionError) as error:
            raise StoreError(
                f"{self._path} is damaged ({error}); without it, this broker could act as a "
                f"second master. Restore it from {self._path.name}.bak, or delete it if this "
                "broker was never promoted and never followed a promoted master"
            ) from error
        self._document = document

    @property
    def entries(self) -> tuple[Epoch, ...]:
        """The epochs in ascending order, without epoch 0."""
        return self._document.epochs

    @property
    def newest(self) -> int:
        """The number of the newest epoch."""
        entries = self._document.epochs
        return entries[-1].epoch if entries else FIRST_EPOCH

    @property
    def role(self) -> AssignedRole | None:
        return self._document.role

    @property
    def cut_at(self) -> int | None:
        """Where the next start has to cut the log, or None."""
        return self._document.cut_at

    @property
    def peers(self) -> tuple[str, ...]:
        return self._document.peers

    def adopt(self, entries: Sequence[Epoch]) -> None:
        """Adopt the epochs of the master that is followed."""
        if tuple(entries) != self.entries:
            check_order(entries)
            self._save(epochs=tuple(entries))

    def begin(self, epoch: int, start_offset: int, role: AssignedRole | None) -> None:
        """Begin this broker's epoch at the end of its log, as a master with that role."""
        entries = tuple(one for one in self.entries if one.start_offset <= start_offset)
        entries += (Epoch(epoch=epoch, start_offset=start_offset),)
        check_order(entries)
        self._save(epochs=entries, role=role)

    def set_role(self, role: AssignedRole | None) -> None:
        """Replace the configured role from the next start on."""
        if role != self.role:
            self._save(role=role)

    def schedule_cut(self, commit_log_offset: int) -> None:
        """Make the next start cut the log at an offset; the part after it must be saved aside."""
        self._save(cut_at=commit_log_offset)

    def clear_cut(self) -> None:
        """Clear the cut, and the epochs that began after it."""
        cut_at = self.cut_at
        if cut_at is not None:
            kept = tuple(one for one in self.entries if one.start_offset <= cut_at)
            self._save(epochs=kept, cut_at=None)

    def add_peer(self, address: str) -> None:
        """Remember another broker of the set; only the newest PEERS_MAX are kept."""
        if address not in self.peers:
            self._save(peers=(*self.peers, address)[-PEERS_MAX:])

    def _save(self, **changes: object) -> None:
        document = msgspec.structs.replace(self._document, **changes)
        text = msgspec.json.format(msgspec.json.encode(document), indent=2)
        self._storage.write_atomically(self._path, text + b"\n", keep_backup=True)
        self._document = document


def check_order(entries: Sequence[Epoch]) -> None:
    """Raise ValueError unless numbers strictly ascend and offsets never decrease."""
    if len(entries) > EPOCHS_MAX:
        raise ValueError(f"{len(entries)} epochs, more than the limit of {EPOCHS_MAX}")
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            raise ValueError(
                f"epoch {after.epoch} at {after.start_offset} follows epoch {before.epoch} at "
                f"{before.start_offset}"
            )


def shared_end(own: LogRange, other: LogRange) -> int:
    """Return the offset up to which two logs may be equal according to their epochs."""
    ends = [own.max_offset, other.max_offset]
    with_first = [(Epoch(epoch=FIRST_EPOCH, start_offset=0), *log.epochs) for log in (own, other)]
    ours, theirs = ([*dict.fromkeys(entries)] for entries in with_first)
    shared = 0
    while shared < min(len(ours), len(theirs)) and ours[shared] == theirs[shared]:
        shared += 1
    ends += [entries[shared].start_offset for entries in (ours, theirs) if shared < len(entries)]
    return min(ends)
