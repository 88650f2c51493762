"""A log's master epochs, and the common part of two logs according to them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from broker_core.errors import StoreError
from broker_core.ha.epochs import (
    EPOCHS_MAX,
    PEERS_MAX,
    AssignedRole,
    Epoch,
    Epochs,
    LogRange,
    check_order,
    shared_end,
)
from tests.support.faulty_storage import FaultyStorage

PATH = Path("/store/epoch.json")
MASTER = AssignedRole(
    broker_role="ASYNC_MASTER", broker_id=0, configured_role="SLAVE", configured_id=1
)


def entries(*pairs: tuple[int, int]) -> tuple[Epoch, ...]:
    return tuple(Epoch(epoch=epoch, start_offset=start) for epoch, start in pairs)


def log(max_offset: int, *pairs: tuple[int, int]) -> LogRange:
    return LogRange(entries(*pairs), 0, max_offset)


def loaded(storage: FaultyStorage) -> Epochs:
    epochs = Epochs(PATH, storage)
    epochs.load()
    return epochs


def test_a_never_promoted_broker_is_in_the_first_epoch() -> None:
    epochs = loaded(FaultyStorage())

    assert (epochs.entries, epochs.newest) == ((), 0)
    assert (epochs.role, epochs.cut_at, epochs.peers) == (None, None, ())


def test_each_change_survives_a_power_cut() -> None:
    storage = FaultyStorage()
    epochs = loaded(storage)

    epochs.begin(3, 500, MASTER)
    epochs.add_peer("10.0.0.2:10911")
    epochs.schedule_cut(700)

    again = loaded(storage.cut_power())
    assert again.entries == entries((3, 500))
    assert again.newest == 3
    assert again.role == MASTER
    assert again.cut_at == 700
    assert again.peers == ("10.0.0.2:10911",)


def test_the_file_has_the_recorded_structure() -> None:
    storage = FaultyStorage()
    loaded(storage).begin(1, 4096, MASTER)

    assert json.loads(storage.read(PATH) or b"") == {
        "epochs": [{"epoch": 1, "startOffset": 4096}],
        "role": {
            "brokerRole": "ASYNC_MASTER",
            "brokerId": 0,
            "configuredRole": "SLAVE",
            "configuredId": 1,
        },
    }


def test_a_failed_write_changes_nothing() -> None:
    storage = FaultyStorage()
    epochs = loaded(storage)
    epochs.begin(1, 10, None)
    storage.fail("write_atomically")

    with pytest.raises(OSError, match="error"):
        epochs.begin(2, 20, MASTER)

    assert epochs.entries == entries((1, 10))
    assert loaded(storage.crash()).entries == entries((1, 10))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"epochs": [{"epoch": -1, "startOffset": 0}]}',
        b'{"epochs": [{"epoch": 1}]}',
        b'{"epochs": [{"epoch": 2, "startOffset": 5}, {"epoch": 2, "startOffset": 6}]}',
        b'{"epochs": [{"epoch": 1, "startOffset": 5}, {"epoch": 2, "startOffset": 4}]}',
        b'{"cutAt": "yes"}',
        b'{"cutAt": 9223372036854775808}',
    ],
)
def test_a_damaged_file_keeps_the_broker_from_starting(text: bytes) -> None:
    storage = FaultyStorage()
    storage.write_atomically(PATH, text)

    with pytest.raises(
        StoreError, match=r"epoch.json is damaged .* Restore it from epoch.json.bak, or delete"
    ):
        loaded(storage)


def test_a_promotion_drops_epochs_without_messages() -> None:
    epochs = loaded(FaultyStorage())
    epochs.adopt(entries((1, 100), (2, 300)))

    epochs.begin(3, 250, None)

    assert epochs.entries == entries((1, 100), (3, 250))


def test_a_truncation_drops_later_epochs() -> None:
    epochs = loaded(FaultyStorage())
    epochs.adopt(entries((1, 100), (2, 300)))
    epochs.schedule_cut(200)

    epochs.clear_cut()

    assert (epochs.entries, epochs.cut_at) == (entries((1, 100)), None)


def test_peers_are_limited_and_the_newest_stay() -> None:
    epochs = loaded(FaultyStorage())

    for number in range(PEERS_MAX + 3):
        epochs.add_peer(f"10.0.0.{number}:10911")

    assert len(epochs.peers) == PEERS_MAX
    assert epochs.peers[-1] == f"10.0.0.{PEERS_MAX + 2}:10911"


@pytest.mark.parametrize(
    ("own", "master", "end"),
    [
        # The same masters: up to the end of the shorter log.
        (log(100), log(200), 100),
        (log(200), log(100), 100),
        (log(200, (1, 50)), log(300, (1, 50)), 200),
        # A slave was promoted at 80: the old master's data after that is only its own.
        (log(100), log(200, (1, 80)), 80),
        (log(80), log(200, (1, 80)), 80),
        (log(60), log(200, (1, 80)), 60),
        # It missed several promotions.
        (log(100), log(300, (1, 80), (2, 150)), 80),
        (log(120, (1, 80)), log(300, (1, 80), (2, 150)), 120),
        (log(170, (1, 80)), log(300, (1, 80), (2, 150)), 150),
        # Both were promoted, one of them without new messages.
        (log(90, (1, 90)), log(200, (2, 80)), 80),
        (log(90, (1, 90)), log(200, (2, 95)), 90),
        # The same number with different starts: two masters unaware of each other.
        (log(200, (1, 80)), log(200, (1, 90)), 80),
        # This broker has recorded an epoch without a message in it.
        (log(90, (1, 100)), log(200, (2, 95)), 90),
        # The master lost part of an epoch that the slave has: a power cut, with ASYNC_FLUSH.
        (log(90, (1, 70)), log(60), 60),
        # A list may include the first epoch.
        (log(100, (0, 0), (1, 50)), log(100, (1, 50)), 100),
    ],
)
def test_two_logs_agree_up_to_an_offset(own: LogRange, master: LogRange, end: int) -> None:
    assert shared_end(own, master) == end


def test_a_peer_cannot_send_an_unlimited_number_of_epochs() -> None:
    with pytest.raises(ValueError, match="more than the limit"):
        check_order(entries(*((number, number) for number in range(EPOCHS_MAX + 1))))


def test_an_unreadable_file_keeps_the_broker_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(path: Path) -> bytes | None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    storage = FaultyStorage()
    monkeypatch.setattr(storage, "read", read)

    with pytest.raises(StoreError, match=r"^/store/epoch.json cannot be read: Input/output error$"):
        loaded(storage)


def test_without_a_requested_truncation_none_happens() -> None:
    epochs = loaded(FaultyStorage())
    epochs.adopt(entries((1, 100)))

    epochs.clear_cut()

    assert epochs.entries == entries((1, 100))


def test_as_many_epochs_as_are_accepted_are_in_order() -> None:
    check_order(entries(*((number, number) for number in range(EPOCHS_MAX))))
