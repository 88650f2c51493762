"""Whom a slave follows, and what it says of a master that it does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from broker_core.errors import ReplicationError
from broker_core.ha.comparison import DOUBTS_MAX, LogComparison
from broker_core.ha.divergence import Place, fingerprint
from broker_core.ha.ending import Ending
from broker_core.ha.epochs import Epoch, Epochs, LogRange
from broker_core.ha.peers import BrokerState, WithoutEpochsError
from broker_core.store.results import DamagedRange
from tests.support.builders import put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.ha.peers import Peers
    from broker_core.store.message_store import MessageStore
    from tests.support.faulty_storage import FaultyStorage

ADDRESS, HA_ADDRESS = "10.0.0.1:10911", "10.0.0.1:10912"


class Master:
    """What a slave hears from its master, whose log is a store's."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.role = "ASYNC_MASTER"
        self.epochs: tuple[Epoch, ...] | None = None
        """None for a real RocketMQ."""
        self.damaged: tuple[tuple[int, int], ...] = ()
        self.doubted: list[int | None] = []
        self.asked: set[str] = set()

    async def state_of(
        self,
        address: str,
        places: Sequence[Place] = (),
        *,
        follows: bool = False,
        doubted: int | None = None,
    ) -> BrokerState:
        self.asked.add(address)
        if self.epochs is None:
            raise WithoutEpochsError(f"the broker at {address} knows no epochs")
        if follows:
            self.doubted.append(doubted)
        log = self.store.files.log
        return BrokerState(
            cluster_name="c",
            broker_name="b",
            broker_id=0,
            broker_role=self.role,
            ha_server_addr=HA_ADDRESS,
            min_offset=log.min_offset,
            max_offset=log.max_offset,
            epochs=self.epochs,
            fingerprints=tuple(fingerprint(log, place) for place in places),
            damaged=self.damaged,
        )

    async def range_of_original(self, address: str) -> LogRange:
        log = self.store.files.log
        return LogRange((), log.min_offset, log.max_offset)

    async def fingerprints_of_original(
        self, address: str, places: Sequence[Place]
    ) -> list[str | None]:
        return [fingerprint(self.store.files.log, place) for place in places]


def receive(slave: MessageStore, master: MessageStore) -> None:
    view = master.files.log.committed_view(slave.max_commit_log_offset)
    assert view is not None
    slave.files.log.append_data(view)
    slave.replay.advance()


@pytest.fixture
def peer(master: MessageStore) -> Master:
    return Master(master)


@pytest.fixture
def epochs(slave_disk: FaultyStorage) -> Epochs:
    made = Epochs(Path("/store/epoch.json"), slave_disk)
    made.load()
    return made


@pytest.fixture
def comparison(
    slave: MessageStore, slave_disk: FaultyStorage, epochs: Epochs, peer: Master
) -> LogComparison:
    return LogComparison(epochs, slave, slave_disk, cast("Peers", peer), Ending(), lambda: ADDRESS)


async def test_a_master_without_epochs_is_followed_by_whom_was_never_under_another(
    comparison: LogComparison, master: MessageStore, slave: MessageStore
) -> None:
    put(master)
    receive(slave, master)
    put(master)

    await comparison.before_transfer(HA_ADDRESS)


async def test_a_master_without_epochs_is_refused_by_who_followed_one_with_epochs(
    comparison: LogComparison, epochs: Epochs
) -> None:
    epochs.adopt((Epoch(epoch=3, start_offset=0),))

    with pytest.raises(ReplicationError) as refused:
        await comparison.before_transfer(HA_ADDRESS)

    assert str(refused.value) == (
        f"the master at {ADDRESS} knows no epochs, and this broker followed one of epoch 3: that "
        "master was replaced. If it is to be followed all the same, stop this broker, move "
        "epoch.json out of its store directory and start it"
    )


async def test_a_master_of_an_earlier_epoch_is_refused(
    comparison: LogComparison, epochs: Epochs, peer: Master
) -> None:
    epochs.adopt((Epoch(epoch=3, start_offset=0),))
    peer.epochs = (Epoch(epoch=2, start_offset=0),)

    with pytest.raises(ReplicationError, match=r"knows epoch 2, .* one of epoch 3: .* replaced"):
        await comparison.before_transfer(HA_ADDRESS)


async def test_a_slave_is_not_followed(comparison: LogComparison, peer: Master) -> None:
    peer.epochs = ()
    peer.role = "SLAVE"

    with pytest.raises(ReplicationError, match=f"{ADDRESS} is a slave, not a master"):
        await comparison.before_transfer(HA_ADDRESS)


async def test_what_goes_beyond_a_master_without_epochs_is_for_the_operator_to_cut(
    comparison: LogComparison, master: MessageStore, slave: MessageStore
) -> None:
    put(master)
    receive(slave, master)
    shared = slave.max_commit_log_offset
    put(master, body=b"gone")
    receive(slave, master)
    master.files.log.continue_at(shared)

    with pytest.raises(ReplicationError, match=f"truncate -c FILE --at {shared}`"):
        await comparison.before_transfer(HA_ADDRESS)


async def test_what_follows_a_hole_that_a_start_found_is_saved_cut_and_taken_again(
    comparison: LogComparison,
    master: MessageStore,
    slave: MessageStore,
    peer: Master,
    epochs: Epochs,
) -> None:
    peer.epochs = ()
    offsets = [put(master).commit_log_offset for _ in range(4)]
    receive(slave, master)
    hole = DamagedRange(offsets[1], offsets[2], "a power cut")
    slave.files.quarantine.add(hole)
    slave.files.quarantine.found_at_start = [hole]

    with pytest.raises(ReplicationError, match=f"found damaged at offset {offsets[1]}, .* and cut"):
        await comparison.before_transfer(HA_ADDRESS)

    assert epochs.cut_at == offsets[1]


async def test_a_hole_that_the_master_has_too_or_that_was_known_is_stepped_over(
    comparison: LogComparison, master: MessageStore, slave: MessageStore, peer: Master
) -> None:
    peer.epochs = ()
    offsets = [put(master).commit_log_offset for _ in range(4)]
    receive(slave, master)
    hole = DamagedRange(offsets[1], offsets[2], "a flipped bit")
    slave.files.quarantine.add(hole)

    await comparison.before_transfer(HA_ADDRESS)
    slave.files.quarantine.found_at_start = [hole]
    peer.damaged = ((offsets[1], offsets[2]),)
    await comparison.before_transfer(HA_ADDRESS)


async def test_what_is_doubted_is_asked_and_the_damaged_ranges_stepped_over(
    comparison: LogComparison, peer: Master, master: MessageStore, slave: MessageStore
) -> None:
    put(master)
    receive(slave, master)
    end = slave.max_commit_log_offset
    put(master)
    view = master.files.log.committed_view(end)
    assert view is not None
    slave.files.log.append_data(view[:50])
    peer.epochs = ()
    peer.damaged = ((end, end + len(view)),)

    await comparison.before_transfer(HA_ADDRESS)

    assert peer.doubted == [end]
    assert slave.max_commit_log_offset == end
    slave.files.log.append_data(memoryview(bytes(len(view))))
    slave.replay.advance()
    assert slave.dispatch_behind_bytes == 0


async def test_a_master_without_epochs_that_sends_no_record_again_and_again_is_named_once(
    comparison: LogComparison,
    master: MessageStore,
    slave: MessageStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(master)
    for _ in range(DOUBTS_MAX + 2):
        slave.files.log.append_data(memoryview(b"\1" * 100))
        with pytest.raises(ReplicationError):
            slave.replay.advance()
        await comparison.before_transfer(HA_ADDRESS)

    assert caplog.text.count(f"the log of the master at {ADDRESS} is damaged at offset 0") == 1
    assert "move its store directory away and start it" in caplog.text


async def test_a_master_that_sent_whole_records_since_is_not_doubted(
    comparison: LogComparison,
    master: MessageStore,
    slave: MessageStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(master)
    slave.files.log.append_data(memoryview(b"\1" * 100))
    with pytest.raises(ReplicationError):
        slave.replay.advance()
    receive(slave, master)

    for _ in range(DOUBTS_MAX):
        await comparison.before_transfer(HA_ADDRESS)

    assert "is damaged at offset" not in caplog.text


@pytest.mark.parametrize(
    ("told", "asked"), [("10.0.0.9:7000", "10.0.0.9:7000"), (None, "10.0.0.1:10911")]
)
async def test_the_master_is_asked_where_name_servers_say_and_else_beside_its_ha_port(
    slave: MessageStore,
    slave_disk: FaultyStorage,
    epochs: Epochs,
    peer: Master,
    told: str | None,
    asked: str,
) -> None:
    peer.epochs = ()

    await LogComparison(
        epochs, slave, slave_disk, cast("Peers", peer), Ending(), lambda: told
    ).before_transfer(HA_ADDRESS)

    assert peer.asked == {asked}
