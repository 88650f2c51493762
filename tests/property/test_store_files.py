"""The files of the log and of a queue, compared with a bytes object and a list."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from broker_core.formats import record
from broker_core.formats.cq_unit import FILLER, UNIT, UNIT_SIZE
from broker_core.store.commit_log import CommitLog
from broker_core.store.consume_queue import ConsumeQueue
from broker_core.store.put_state import PutState
from tests.support.faulty_storage import FaultyStorage

LOG_FILE_SIZE = 4096
QUEUE_FILE_SIZE = 10 * UNIT_SIZE
LOG = Path("/store/commitlog")
QUEUE = Path("/store/consumequeue/red/0")
PROFILE = settings(
    max_examples=40, stateful_step_count=25, derandomize=True, phases=[Phase.generate]
)


class LogMachine(RuleBasedStateMachine):
    """Appends pieces; fills files with blanks, cuts, deletes and loads them again."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = ThreadPoolExecutor(1)
        self.storage = FaultyStorage()
        self.pieces: list[tuple[int, bytes]] = []
        self.number = 0
        self.log = self.new_log()
        self.log.continue_at(0)

    def new_log(self) -> CommitLog:
        log = CommitLog(LOG, LOG_FILE_SIZE, self.storage, self.allocator, PutState())
        log.load()
        return log

    def teardown(self) -> None:
        self.look()
        self.log.close()
        self.allocator.shutdown()

    @rule(size=st.one_of(st.integers(1, 200), st.integers(1, LOG_FILE_SIZE - 8)))
    def append(self, size: int) -> None:
        log = self.log
        self.number += 1
        data = (b"%d," % self.number * size)[:size]
        end = log.max_offset
        room = LOG_FILE_SIZE - log.put_state.position
        if log.put_state.position + size > log.put_state.limit:
            log.make_room(size)
        log.put_state.buffer[log.put_state.position : log.put_state.position + size] = data
        place = log.max_offset
        log.put_state.position += size
        self.pieces.append((place, data))
        is_rolled = size + record.BLANK_SIZE_MIN > room
        assert place == (end + room if is_rolled else end)
        if is_rolled and room:
            view = log.files[-2].view[LOG_FILE_SIZE - room :]
            assert record.BLANK.unpack_from(view) == (room, record.BLANK_MAGIC)

    @precondition(lambda self: self.pieces)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        """Let a start find the end of the log at the end of one of the pieces."""
        kept = data.draw(st.integers(1, len(self.pieces)))
        self.pieces = self.pieces[:kept]
        self.log.close()
        self.log = self.new_log()
        place, piece = self.pieces[-1]
        self.log.continue_at(place + len(piece))
        assert self.log.max_offset == self.log.flushed_where == place + len(piece)

    @rule()
    def expire(self) -> None:
        self.log.delete_first()
        self.pieces = [one for one in self.pieces if one[0] >= self.log.min_offset]

    @rule()
    def look(self) -> None:
        for place, piece in self.pieces:
            read = self.log.read(place, len(piece))
            assert read is not None
            assert bytes(read) == piece
        assert self.log.read(self.log.max_offset, 1) is None
        starts = [file.file_from_offset for file in self.log.files]
        first = self.log.min_offset
        assert starts == list(range(first, first + LOG_FILE_SIZE * len(starts), LOG_FILE_SIZE))


class QueueMachine(RuleBasedStateMachine):
    """Appends units, singly and in bulk; loses, cuts, deletes and loads them again."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = FaultyStorage()
        self.units: list[bytes] = []
        """The units from queue_offset 0 on."""
        self.place = 0
        self.first = 0
        self.expired = 0
        self.queue = self.new_queue()

    def new_queue(self) -> ConsumeQueue:
        queue = ConsumeQueue("red", 0, QUEUE, QUEUE_FILE_SIZE, self.storage, lambda *_: None)
        queue.load(trust_end=False)
        return queue

    def new_units(self, count: int) -> list[bytes]:
        units = [UNIT.pack(self.place + n * 100, 100, n) for n in range(count)]
        self.place += count * 100
        return units

    @rule(count=st.integers(1, 35), in_bulk=st.booleans())
    def append(self, count: int, in_bulk: bool) -> None:
        units = self.new_units(count)
        if in_bulk:
            self.queue.append_units(b"".join(units))
        else:
            self.queue.make_room(count)
            calls = self.storage.calls["allocate"]
            for unit in units:
                self.queue.append(*UNIT.unpack(unit))
            assert self.storage.calls["allocate"] == calls
        self.units += units
        self.queue.max_offset = self.queue.next_offset

    @precondition(lambda self: len(self.units) > self.first)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        lost = data.draw(st.integers(self.first, len(self.units) - 1))
        assert self.queue.put_filler_at(lost) == (self.units[lost] != FILLER)
        self.units[lost] = FILLER

    @precondition(lambda self: self.units)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(max(self.first, 1), len(self.units)))
        self.queue.truncate(kept, thorough=data.draw(st.booleans()))
        del self.units[kept:]

    @precondition(lambda self: self.units)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """Delete messages up to an offset of the log."""
        first = self.expired = data.draw(st.integers(self.expired, self.place))
        self.queue.delete_before(first)
        self.first = self.queue.first_offset()
        assert self.first % (QUEUE_FILE_SIZE // UNIT_SIZE) == 0
        gone = self.units[: self.first]
        assert all(unit == FILLER or UNIT.unpack(unit)[0] < first for unit in gone)

    @rule()
    def load(self) -> None:
        self.queue.close()
        self.queue = self.new_queue()

    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        queue = self.queue
        assert queue.next_offset == len(self.units)
        found: list[bytes] = []
        offset = self.first
        while offset < len(self.units):
            part = bytes(queue.stored_units(offset, 7))
            assert part
            found += [part[n : n + UNIT_SIZE] for n in range(0, len(part), UNIT_SIZE)]
            offset = self.first + len(found)
        assert found == self.units[self.first :]
        bound = data.draw(st.integers(0, self.place))
        at = queue.lower_bound(self.first, lambda offset: offset < bound)
        for number in range(self.first, len(self.units)):
            offset, _, _ = UNIT.unpack(self.units[number])
            assert self.units[number] == FILLER or (offset < bound) == (number < at)


def test_a_file_that_ends_with_a_lost_message_stays_while_it_has_others() -> None:
    queue = QueueMachine().queue
    for n in range(20):
        queue.append(n * 100, 100, 0)
    queue.put_filler_at(9)

    assert queue.delete_before(800) == 0
    assert queue.delete_before(900) == 1
    assert queue.first_offset() == 10


def test_the_current_file_stays_when_the_next_was_created_ahead() -> None:
    queue = QueueMachine().queue
    queue.append(0, 100, 0)
    queue.make_room(12)

    assert queue.delete_before(900) == 0


TestLog = LogMachine.TestCase
TestLog.settings = PROFILE
TestQueue = QueueMachine.TestCase
TestQueue.settings = PROFILE
