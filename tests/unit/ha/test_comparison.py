"""Which master a slave follows, and its report about a master it doesn't follow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from broker_core.errors import RemotingTimeoutError, ReplicationError
from broker_core.ha.comparison import DOUBTS_MAX, LogComparison
from broker_core.ha.divergence import Place, fingerprint
from broker_core.ha.epochs import Epoch, Epochs, LogRange
from broker_core.ha.peers import BrokerState, WithoutEpochsError
from broker_core.ha.shutdown import Shutdown
from broker_core.store.results import DamagedRange
from tests.support.builders import LOG_FILE_SIZE, put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.ha.peers import Peers
    from broker_core.store.message_store import MessageStore
    from tests.support.faulty_storage import FaultyStorage

ADDRESS, HA_ADDRESS = "10.0.0.1:10911", "10.0.0.1:10912"


class Master:
    """A slave's view of its master, whose log is a store's."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.role = "ASYNC_MASTER"
        self.epochs: tuple[Epoch, ...] | None = None
        """None for a real RocketMQ."""
        self.damaged: tuple[tuple[int, int], ...] = ()
        self.doubted: list[int | None] = []
        self.requests: set[str] = set()
        self.questions: list[int] = []
        """The number of records in each query."""
        self.error: Exception | None = None
        """The error of its answers, and from which query on."""
        self.silent_from = 0

    async def state_of(
        self,
        address: str,
        places: Sequence[Place] = (),
        *,
        follows: bool = False,
        doubted: int | None = None,
    ) -> BrokerState:
        self.requests.add(address)
        self._answer()
        if places:
            self.questions.append(len(places))
        if self.epochs is None:
            raise WithoutEpochsError(f"the broker at {address} doesn't support epochs")
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

    def _answer(self) -> None:
        self.silent_from -= 1
        if self.error is not None and self.silent_from < 0:
            raise self.error

    async def range_of_original(self, address: str) -> LogRange:
        self._answer()
        log = self.store.files.log
        return LogRange((), log.min_offset, log.max_offset)

    async def fingerprints_of_original(
        self, address: str, places: Sequence[Place]
    ) -> list[str | None]:
        self._answer()
        self.questions.append(len(places))
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
def ending() -> Shutdown:
    return Shutdown()


@pytest.fixture
def comparison(
    slave: MessageStore, slave_disk: FaultyStorage, epochs: Epochs, peer: Master, ending: Shutdown
) -> LogComparison:
    return LogComparison(epochs, slave, slave_disk, cast("Peers", peer), ending, lambda: ADDRESS)


async def test_a_master_without_epochs_is_followed_by_slaves_without_epoch_history(
    comparison: LogComparison, master: MessageStore, slave: MessageStore
) -> None:
    put(master)
    receive(slave, master)
    put(master)

    await comparison.before_transfer(HA_ADDRESS)


async def test_a_master_without_epochs_is_rejected_by_slaves_with_epoch_history(
    comparison: LogComparison, epochs: Epochs
) -> None:
    epochs.adopt((Epoch(epoch=3, start_offset=0),))

    with pytest.raises(ReplicationError) as refused:
        await comparison.before_transfer(HA_ADDRESS)

    assert str(refused.value) == (
        f"the master at {ADDRESS} has no epochs, but this broker followed a master of epoch 3; "
        f"the master at {ADDRESS} was replaced. To follow it anyway, stop this broker, move "
        "epoch.json out of its store directory and start it again"
    )


async def test_a_master_of_an_earlier_epoch_is_rejected(
    comparison: LogComparison, epochs: Epochs, peer: Master
) -> None:
    epochs.adopt((Epoch(epoch=3, start_offset=0),))
    peer.epochs = (Epoch(epoch=2, start_offset=0),)

    with pytest.raises(ReplicationError, match=r"in epoch 2, .* master of epoch 3; .* replaced"):
        await comparison.before_transfer(HA_ADDRESS)


async def test_a_slave_is_not_followed(comparison: LogComparison, peer: Master) -> None:
    peer.epochs = ()
    peer.role = "SLAVE"

    with pytest.raises(ReplicationError, match=f"{ADDRESS} is a slave, not a master"):
        await comparison.before_transfer(HA_ADDRESS)


async def test_the_operator_must_truncate_data_beyond_a_master_without_epochs(
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


async def test_data_after_a_hole_found_at_the_start_is_saved_truncated_and_copied_again(
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

    with pytest.raises(ReplicationError, match=f"is damaged at offset {offsets[1]}, .* and cut"):
        await comparison.before_transfer(HA_ADDRESS)

    assert epochs.cut_at == offsets[1]


async def test_a_hole_that_the_master_has_or_that_was_known_is_skipped(
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


async def test_doubtful_data_is_queried_and_damaged_ranges_are_skipped(
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


async def test_a_master_without_epochs_or_records_is_reported_once(
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

    assert (
        caplog.text.count(
            f"master log damaged, replication stopped master={ADDRESS} commit_log_offset=0"
        )
        == 1
    )


async def test_a_master_that_has_sent_whole_records_is_trusted(
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

    assert "master log damaged" not in caplog.text


@pytest.mark.parametrize(
    ("reported", "expected"), [("10.0.0.9:7000", "10.0.0.9:7000"), (None, "10.0.0.1:10911")]
)
async def test_the_master_is_found_through_name_servers_or_next_to_its_ha_port(
    slave: MessageStore,
    slave_disk: FaultyStorage,
    epochs: Epochs,
    peer: Master,
    reported: str | None,
    expected: str,
) -> None:
    peer.epochs = ()

    await LogComparison(
        epochs, slave, slave_disk, cast("Peers", peer), Shutdown(), lambda: reported
    ).before_transfer(HA_ADDRESS)

    assert peer.requests == {expected}


async def test_comparing_equal_logs_costs_one_query_about_one_record(
    comparison: LogComparison, master: MessageStore, slave: MessageStore, peer: Master
) -> None:
    for queue_id in (1, 0, 2, 1):
        put(master, queue_id=queue_id)
    put(master, "Other", 3)
    put(master, queue_id=0)
    receive(slave, master)
    put(master)

    for peer.epochs in (None, ()):
        peer.questions.clear()
        await comparison.before_transfer(HA_ADDRESS)
        assert peer.questions == [1]

    assert comparison.master_role == "ASYNC_MASTER"


async def test_a_slave_without_a_log_compares_nothing(
    comparison: LogComparison, master: MessageStore, peer: Master
) -> None:
    assert comparison.master_role == ""
    put(master)

    for peer.epochs in (None, (), (Epoch(epoch=1, start_offset=0),)):
        await comparison.before_transfer(HA_ADDRESS)

    assert peer.questions == []


async def test_the_masters_epochs_are_taken_over(
    comparison: LogComparison, master: MessageStore, peer: Master, epochs: Epochs
) -> None:
    put(master)
    peer.epochs = (Epoch(epoch=2, start_offset=0),)

    for _ in range(2):
        await comparison.before_transfer(HA_ADDRESS)

    assert epochs.entries == peer.epochs


async def test_data_missing_on_the_master_is_saved_and_truncated_by_a_restart(
    comparison: LogComparison,
    master: MessageStore,
    slave: MessageStore,
    slave_disk: FaultyStorage,
    peer: Master,
    epochs: Epochs,
    ending: Shutdown,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(master)
    receive(slave, master)
    end = slave.max_commit_log_offset
    put(master, body=b"of the old master only")
    receive(slave, master)
    lost = slave.max_commit_log_offset - end
    master.files.log.continue_at(end)
    peer.epochs = (Epoch(epoch=1, start_offset=end),)

    with pytest.raises(ReplicationError) as refused:
        await comparison.before_transfer(HA_ADDRESS)

    (saved,) = slave_disk.list_directory(slave.files.paths.diverged)
    place = slave.files.paths.diverged / saved
    reason = (
        f"its log diverges from that of the master at {ADDRESS} at offset {end}; the {lost} bytes "
        f"after it are saved in {place} and cut"
    )
    assert str(refused.value) == reason
    assert epochs.cut_at == end
    assert (ending.is_requested, ending.failure) == (True, "")
    assert f"broker restarting reason={reason}" in caplog.messages
    assert epochs.entries == (), "not before the cut"


async def test_nothing_is_truncated_without_a_saved_copy(
    comparison: LogComparison,
    master: MessageStore,
    slave: MessageStore,
    slave_disk: FaultyStorage,
    peer: Master,
    epochs: Epochs,
    ending: Shutdown,
) -> None:
    put(master)
    receive(slave, master)
    peer.epochs = (Epoch(epoch=1, start_offset=0),)
    master.files.log.continue_at(0)
    slave_disk.fail("write_atomically")

    with pytest.raises(ReplicationError, match=r"^the logs diverge, .* couldn't be saved: .*error"):
        await comparison.before_transfer(HA_ADDRESS)

    assert epochs.cut_at is None
    assert not ending.is_requested


@pytest.mark.parametrize(
    ("answers", "knows_epochs", "error", "words"),
    [
        (
            0,
            True,
            RemotingTimeoutError("silent"),
            f"couldn't get the epochs of the master at {ADDRESS}: silent",
        ),
        (0, True, OSError("no file"), "the logs cannot be compared: no file"),
        (1, True, RemotingTimeoutError("silent"), "the logs cannot be compared: silent"),
        (1, False, RemotingTimeoutError("silent"), "the logs cannot be compared: silent"),
        (2, False, RemotingTimeoutError("silent"), "the logs cannot be compared: silent"),
    ],
)
async def test_a_master_that_stops_answering_is_not_followed(
    comparison: LogComparison,
    master: MessageStore,
    slave: MessageStore,
    peer: Master,
    answers: int,
    knows_epochs: bool,
    error: Exception,
    words: str,
) -> None:
    put(master)
    receive(slave, master)
    peer.epochs = () if knows_epochs else None
    peer.error, peer.silent_from = error, answers

    with pytest.raises(ReplicationError, match=words):
        await comparison.before_transfer(HA_ADDRESS)


@pytest.mark.parametrize(
    ("damaged_from", "damaged_to", "is_cut"),
    [(0, 1, False), (1, 2, False), (0, 2, False), (2, 3, True), (0, 0, True)],
)
async def test_a_hole_belongs_to_the_master_if_it_touches_his_damage(
    comparison: LogComparison,
    master: MessageStore,
    slave: MessageStore,
    peer: Master,
    damaged_from: int,
    damaged_to: int,
    is_cut: bool,
) -> None:
    offsets = [put(master).commit_log_offset for _ in range(5)]
    receive(slave, master)
    hole = DamagedRange(offsets[1] - 10, offsets[2], "a flipped bit")
    slave.files.quarantine.add(hole)
    slave.files.quarantine.found_at_start = [hole]
    peer.epochs = ()
    peer.damaged = ((offsets[damaged_from], offsets[damaged_to]),)

    if is_cut:
        with pytest.raises(ReplicationError, match="is damaged at offset"):
            await comparison.before_transfer(HA_ADDRESS)
    else:
        await comparison.before_transfer(HA_ADDRESS)


@pytest.mark.parametrize("is_expired", [True, False])
async def test_a_hole_in_data_that_the_master_no_longer_has_is_kept(
    comparison: LogComparison,
    master: MessageStore,
    slave: MessageStore,
    peer: Master,
    is_expired: bool,
) -> None:
    while master.max_commit_log_offset < 2 * LOG_FILE_SIZE:
        put(master, body=b"x" * 9_000)
    receive(slave, master)
    receive(slave, master)
    master.files.log.delete_first()
    begin = master.min_commit_log_offset
    hole = DamagedRange(begin - is_expired, begin + 100, "a flipped bit")
    slave.files.quarantine.add(hole)
    slave.files.quarantine.found_at_start = [hole]
    peer.epochs = ()

    if is_expired:
        await comparison.before_transfer(HA_ADDRESS)
    else:
        with pytest.raises(ReplicationError, match=f"is damaged at offset {begin}"):
            await comparison.before_transfer(HA_ADDRESS)


async def test_an_offset_that_is_doubted_three_times_in_a_row_is_named(
    comparison: LogComparison,
    master: MessageStore,
    slave: MessageStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def sends_no_record() -> str:
        slave.files.log.append_data(memoryview(b"\1" * 100))
        with pytest.raises(ReplicationError):
            slave.replay.advance()
        await comparison.before_transfer(HA_ADDRESS)
        return caplog.text

    for _ in range(2):
        assert "master log damaged" not in await sends_no_record()
    put(master)
    receive(slave, master)
    end = slave.max_commit_log_offset
    put(master)
    # Another location: counting starts over.
    for _ in range(2):
        assert "master log damaged" not in await sends_no_record()
    assert f"commit_log_offset={end} attempts=3" in await sends_no_record()
