"""Mutants: brokers with one deliberate bug each, for the checker to find.

Each names the plans that can reveal it, so that few seeds are needed, and whether it needs
`groups`.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from broker_core.delay.delay_offsets import DelayOffsets
from broker_core.delay.due_times import DueTimes
from broker_core.delivery.sql_filter import SqlFilter
from broker_core.delivery.tag_filter import TagFilter
from broker_core.formats import ha_frames
from broker_core.formats.cq_unit import UNIT_SIZE
from broker_core.ha import master as ha_master, slave as ha_slave
from broker_core.ha.connection import HaConnection
from broker_core.ha.master import HaMaster
from broker_core.metadata.consumer_offsets import ConsumerOffsets
from broker_core.metadata.topics import Topics
from broker_core.processors.send_back import SendBackProcessor
from broker_core.protocol.codes import ResponseCode
from broker_core.sending import detours
from broker_core.sending.dead_letters import DeadLetters
from broker_core.store import put
from broker_core.store.acknowledge import Acknowledgement
from broker_core.store.availability import Availability
from broker_core.store.commit_log import CommitLog
from broker_core.store.put import MessagePut
from broker_core.store.recovery import Recovery
from broker_core.store.results import PutMessageStatus, RecoveryReport
from broker_core.transaction.half import Outcome
from broker_core.transaction.resolve import Transactions
from tests.support.faulty_storage import FaultyFile
from tools.faults.simulation.groups import MIXED_TOPIC
from tools.faults.simulation.plan import MASTER, Fault, Plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    Patch = Callable[[], AbstractContextManager[object]]

ANY_END = 1 << 62
EARLY_MS = 200
EVERY_NTH_UNIT = 40
LOST_UNITS = 2
REWIND_BY = 3
CUT_BYTES = 2_000


class Mutant(NamedTuple):
    """How to patch the broker, which plans can reveal it, and whether they need `groups`."""

    patch: Patch
    needs: Callable[[Plan], bool]
    is_mixed: bool = True


def has(*faults: Fault) -> Callable[[Plan], bool]:
    """Return whether a plan has one of these faults."""
    return lambda plan: any(event.fault in faults for event in plan.events)


def any_plan(plan: Plan) -> bool:
    return True


def by_python(plan: Plan) -> bool:
    """Return whether Python serves requests: the compiled turn doesn't call patched functions."""
    return not plan.is_native


def nth(number: int) -> Callable[[], bool]:
    """Return a predicate that is true every n-th time."""
    calls = itertools.count(1)
    return lambda: next(calls) % number == 0


def _never_flushes() -> AbstractContextManager[object]:
    return mock.patch.object(FaultyFile, "fdatasync", return_value=None)


def _acknowledges_before_the_flush() -> AbstractContextManager[object]:
    def report_together(self: Acknowledgement, end: int, waiter: Any, put_at: float) -> None:
        waiter.end(PutMessageStatus.PUT_OK)

    return mock.patch.multiple(
        Acknowledgement, notify=lambda *_: False, report_together=report_together
    )


def _acknowledges_after_a_failed_flush() -> AbstractContextManager[object]:
    fdatasync = FaultyFile.fdatasync

    def once_more(self: FaultyFile) -> None:
        with suppress(OSError):
            fdatasync(self)

    return mock.patch.object(FaultyFile, "fdatasync", once_more)


def _counts_a_connected_slave_as_in_sync() -> AbstractContextManager[object]:
    def replicated_where(self: HaMaster, slaves: int) -> int:
        return ANY_END if self.connections() else -1

    return mock.patch.object(HaMaster, "replicated_where", replicated_where)


def _slave_reports_unflushed_data() -> AbstractContextManager[object]:
    encode = ha_frames.encode_report
    # The master must have sent it, so the mutant reports received data as flushed.
    ahead: list[int] = [0]
    append = CommitLog.append_data

    def append_data(self: CommitLog, data: memoryview) -> None:
        append(self, data)
        ahead[0] = self.max_offset

    def encode_report(commit_log_offset: int) -> bytes:
        is_behind = commit_log_offset < ahead[0] <= commit_log_offset + (1 << 16)
        return encode(ahead[0] if is_behind else commit_log_offset)

    return _both(
        mock.patch.object(ha_slave, "encode_report", encode_report),
        mock.patch.object(CommitLog, "append_data", append_data),
    )


def _trusts_false_reports() -> AbstractContextManager[object]:
    close = HaConnection.close

    def believe(self: HaConnection, reason: str) -> None:
        if reason.startswith("the slave reported"):
            self.acknowledged_offset = ANY_END
        else:
            close(self, reason)

    return mock.patch.object(HaConnection, "close", believe)


def _keeps_connections_with_false_reports() -> AbstractContextManager[object]:
    close = HaConnection.close

    def keep(self: HaConnection, reason: str) -> None:
        if not reason.startswith("the slave reported"):
            close(self, reason)

    return mock.patch.object(HaConnection, "close", keep)


def _lets_one_host_use_all_connections() -> AbstractContextManager[object]:
    return mock.patch.object(ha_master, "CONNECTIONS_OF_HOST_MAX", ha_master.CONNECTIONS_MAX)


def _slave_corrupts_bytes() -> AbstractContextManager[object]:
    append, is_corrupted = CommitLog.append_data, nth(5)

    def append_data(self: CommitLog, data: memoryview) -> None:
        size = len(data)
        # The last bytes of a transfer are the last ones of a record's properties.
        append(
            self, memoryview(bytes(data[: size - 1]) + b"~") if is_corrupted() and size else data
        )

    return mock.patch.object(CommitLog, "append_data", append_data)


def _slave_accepts_sends() -> AbstractContextManager[object]:
    return mock.patch.object(Availability, "follow")


def _skips_units() -> AbstractContextManager[object]:
    is_skipped, pack = nth(EVERY_NTH_UNIT), put.pack_unit_into

    def pack_most(*arguments: Any) -> None:
        if not is_skipped():
            pack(*arguments)

    return mock.patch.object(put, "pack_unit_into", pack_most)


def _writes_a_unit_twice() -> AbstractContextManager[object]:
    is_doubled, pack = nth(EVERY_NTH_UNIT), put.pack_unit_into

    def pack_twice(buffer: Any, position: int, *unit: Any) -> None:
        pack(buffer, position, *unit)
        if is_doubled() and position >= UNIT_SIZE:
            pack(buffer, position - UNIT_SIZE, *unit)

    return mock.patch.object(put, "pack_unit_into", pack_twice)


def _swaps_two_units() -> AbstractContextManager[object]:
    is_swapped, pack = nth(EVERY_NTH_UNIT), put.pack_unit_into

    def pack_and_swap(buffer: Any, position: int, *unit: Any) -> None:
        pack(buffer, position, *unit)
        before, size = position - UNIT_SIZE, UNIT_SIZE
        if is_swapped() and before >= 0:
            own, other = bytes(buffer[position : position + size]), bytes(buffer[before:position])
            buffer[before:position], buffer[position : position + size] = own, other

    return mock.patch.object(put, "pack_unit_into", pack_and_swap)


def _flips_a_byte() -> AbstractContextManager[object]:
    is_flipped, put_message = nth(EVERY_NTH_UNIT), MessagePut.put_message

    def put_altered(
        self: MessagePut, topic: str, queue_id: int, body: bytes, *rest: Any, **more: Any
    ) -> Any:
        if topic == MIXED_TOPIC and is_flipped():
            body = bytes(body)[:-1] + b"!"
        return put_message(self, topic, queue_id, body, *rest, **more)

    return mock.patch.object(MessagePut, "put_message", put_altered)


def _lets_store_times_go_back() -> AbstractContextManager[object]:
    begin_millisecond = MessagePut.begin_millisecond

    def begin_any(self: MessagePut, now_ms: int) -> int:
        begin_millisecond(self, now_ms)
        self.state.store_timestamp = now_ms
        return now_ms

    return mock.patch.object(MessagePut, "begin_millisecond", begin_any)


def _forgets_store_times_on_restart() -> AbstractContextManager[object]:
    run = Recovery.run

    def run_and_forget(self: Recovery, *, follows: bool = False) -> RecoveryReport:
        report = run(self, follows=follows)
        self.store_timestamp = 0
        return report

    return mock.patch.object(Recovery, "run", run_and_forget)


def _truncates_the_log_during_recovery() -> AbstractContextManager[object]:
    continue_at = CommitLog.continue_at

    def continue_before(self: CommitLog, offset: int, zero_from: int | None = None) -> int:
        file = self.file_at(max(0, offset - 1))
        if file is None:
            return continue_at(self, offset, zero_from)
        end = position = 0
        while position <= offset - file.file_from_offset - CUT_BYTES:
            end = position
            # A record begins with its size.
            position += int.from_bytes(file.view[position : position + 4], "big") or CUT_BYTES
        return continue_at(self, file.file_from_offset + end, None)

    return mock.patch.object(CommitLog, "continue_at", continue_before)


def _delivers_early() -> AbstractContextManager[object]:
    due_ms = DueTimes.due_ms

    def earlier(self: DueTimes, queue_offset: int, deliver_time_ms: int) -> int:
        return due_ms(self, queue_offset, deliver_time_ms) - EARLY_MS

    return mock.patch.object(DueTimes, "due_ms", earlier)


def _loses_delayed_messages_on_restart() -> AbstractContextManager[object]:
    load = DelayOffsets.load

    def load_further(self: DelayOffsets) -> None:
        load(self)
        for level, offset in list(self.table.items()):
            self.move(level, offset + LOST_UNITS)

    return mock.patch.object(DelayOffsets, "load", load_further)


def _loses_half_messages() -> AbstractContextManager[object]:
    end, is_lost = Transactions.end, nth(4)
    lost: set[int] = set()

    def end_most(self: Transactions, group: str, at: int, place: int, *rest: Any) -> Any:
        if is_lost():
            lost.add(place)
        return None if place in lost else end(self, group, at, place, *rest)

    return mock.patch.object(Transactions, "end", end_most)


def _delivers_half_messages() -> AbstractContextManager[object]:
    return mock.patch.object(detours, "withhold", return_value=None)


def _commits_rolled_back_messages() -> AbstractContextManager[object]:
    end = Transactions.end

    def commit(self: Transactions, group: str, at: int, place: int, _: Outcome, *rest: Any) -> Any:
        return end(self, group, at, place, Outcome.COMMITTED, *rest)

    return mock.patch.object(Transactions, "end", commit)


def _rewinds_offsets() -> AbstractContextManager[object]:
    query = ConsumerOffsets.query

    def query_less(self: ConsumerOffsets, group: str, topic: str, queue_id: int) -> int:
        return max(-1, query(self, group, topic, queue_id) - REWIND_BY)

    return mock.patch.object(ConsumerOffsets, "query", query_less)


def _forgets_commits() -> AbstractContextManager[object]:
    commit, is_forgotten = ConsumerOffsets.commit, nth(2)

    def commit_some(self: ConsumerOffsets, *arguments: Any) -> None:
        if not is_forgotten():
            commit(self, *arguments)

    return mock.patch.object(ConsumerOffsets, "commit", commit_some)


def _drops_retries() -> AbstractContextManager[object]:
    send_back, is_dropped = SendBackProcessor.consumer_send_msg_back, nth(3)

    def drop_some(self: SendBackProcessor, request: Any, connection: Any) -> Any:
        if is_dropped():
            return request.answer(ResponseCode.SUCCESS)
        return send_back(self, request, connection)

    return mock.patch.object(SendBackProcessor, "consumer_send_msg_back", drop_some)


def _never_creates_dead_letters() -> AbstractContextManager[object]:
    return mock.patch.object(DeadLetters, "is_dead", return_value=False)


def _filters_by_queue_units_only() -> AbstractContextManager[object]:
    return mock.patch.object(SqlFilter, "by_record", return_value=True)


def _filters_out_matching_messages() -> AbstractContextManager[object]:
    by_tags_code, is_kept_back = TagFilter.by_tags_code, nth(7)

    def fewer(self: TagFilter, tags_code: int) -> bool:
        return by_tags_code(self, tags_code) and not is_kept_back()

    return mock.patch.object(TagFilter, "by_tags_code", fewer)


def _loses_topics_on_restart() -> AbstractContextManager[object]:
    load = Topics.load

    def load_others(self: Topics) -> None:
        load(self)
        self.table.pop(MIXED_TOPIC, None)

    return mock.patch.object(Topics, "load", load_others)


class _Both:
    """Two patches."""

    def __init__(self, *patches: Any) -> None:
        self._patches = patches

    def __enter__(self) -> None:
        for patch in self._patches:
            patch.__enter__()

    def __exit__(self, *error: Any) -> None:
        for patch in reversed(self._patches):
            patch.__exit__(*error)


def _both(*patches: Any) -> AbstractContextManager[object]:
    return _Both(*patches)


def _cuts_power_mid_call(plan: Plan) -> bool:
    """Return whether the master's disk loses data during one of its calls."""
    return plan.is_sync and any(
        event.fault is Fault.CUT and event.host == MASTER and event.call and event.kept < 1
        for event in plan.events
    )


def _has_slave(plan: Plan) -> bool:
    return plan.has_slave


def _has_liar(plan: Plan) -> bool:
    return plan.has_liar


def _has_no_restart(plan: Plan) -> bool:
    """Return whether no process ends, so that nothing excuses redeliveries."""
    return has(Fault.BREAK)(plan) and not has(Fault.KILL, Fault.STOP, Fault.CUT, Fault.DISK)(plan)


def _has_restart(plan: Plan) -> bool:
    return has(Fault.KILL, Fault.CUT)(plan)


def _has_restart_and_clock_step(plan: Plan) -> bool:
    return _has_restart(plan) and has(Fault.STEP)(plan)


def _has_clock_step_in_python(plan: Plan) -> bool:
    return by_python(plan) and has(Fault.STEP)(plan)


def _has_restart_in_python(plan: Plan) -> bool:
    return by_python(plan) and _has_restart(plan)


MUTANTS: dict[str, Mutant] = {
    "never flushes": Mutant(_never_flushes, has(Fault.CUT)),
    "acknowledges before the flush": Mutant(
        _acknowledges_before_the_flush, _cuts_power_mid_call, is_mixed=False
    ),
    "acknowledges after a failed flush": Mutant(
        _acknowledges_after_a_failed_flush, has(Fault.DISK)
    ),
    "counts a connected slave as in sync": Mutant(_counts_a_connected_slave_as_in_sync, _has_slave),
    "slave reports unflushed data": Mutant(
        _slave_reports_unflushed_data, lambda plan: plan.has_slave and plan.ack_mode == "flushed"
    ),
    "trusts false reports": Mutant(_trusts_false_reports, _has_liar),
    "keeps connections with false reports": Mutant(
        _keeps_connections_with_false_reports, _has_liar
    ),
    "lets one host use all connections": Mutant(
        _lets_one_host_use_all_connections, _has_liar, is_mixed=False
    ),
    "slave corrupts bytes": Mutant(_slave_corrupts_bytes, _has_slave),
    "slave accepts sends": Mutant(_slave_accepts_sends, _has_slave),
    "skips units": Mutant(_skips_units, by_python),
    "writes a unit twice": Mutant(_writes_a_unit_twice, by_python),
    "swaps two units": Mutant(_swaps_two_units, by_python),
    "flips a byte": Mutant(_flips_a_byte, by_python),
    "lets store times go back": Mutant(
        _lets_store_times_go_back, _has_clock_step_in_python, is_mixed=False
    ),
    "forgets store times on restart": Mutant(
        _forgets_store_times_on_restart, _has_restart_and_clock_step, is_mixed=False
    ),
    "truncates the log during recovery": Mutant(_truncates_the_log_during_recovery, _has_restart),
    "delivers early": Mutant(_delivers_early, any_plan),
    "loses delayed messages on restart": Mutant(_loses_delayed_messages_on_restart, _has_restart),
    "loses half messages": Mutant(_loses_half_messages, by_python),
    "delivers half messages": Mutant(_delivers_half_messages, by_python),
    "commits rolled-back messages": Mutant(_commits_rolled_back_messages, any_plan),
    "rewinds offsets": Mutant(_rewinds_offsets, _has_no_restart),
    "forgets commits": Mutant(_forgets_commits, _has_no_restart),
    "drops retries": Mutant(_drops_retries, any_plan),
    "never creates dead letters": Mutant(_never_creates_dead_letters, any_plan),
    "filters by queue units only": Mutant(_filters_by_queue_units_only, any_plan),
    "filters out matching messages": Mutant(_filters_out_matching_messages, by_python),
    "loses topics on restart": Mutant(_loses_topics_on_restart, _has_restart_in_python),
}
