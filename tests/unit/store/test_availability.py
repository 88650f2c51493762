"""Why puts are rejected: each reason alone, and the one reported when several apply."""

from __future__ import annotations

import errno

import pytest

from broker_core.store.availability import Availability
from broker_core.store.put_state import PutState


@pytest.fixture
def state():
    return PutState()


@pytest.fixture
def availability(state):
    availability = Availability(state)
    availability.start()
    return availability


def test_nothing_is_accepted_before_the_start_and_after_the_stop(state):
    availability = Availability(state)
    assert (state.is_writable, availability.text()) == (False, "stopped")

    availability.start()
    assert (state.is_writable, availability.text()) == (True, "running")

    availability.stop()
    assert (state.is_writable, availability.text()) == (False, "stopped")


def test_a_full_disk_rejects_until_there_is_room(state, availability, caplog):
    availability.fill_disk()
    availability.fill_disk(91.0)
    assert (state.is_writable, availability.text()) == (False, "read-only: the disk is full")

    availability.free_disk(80.0)

    assert state.is_writable
    assert [entry.levelname for entry in caplog.records] == ["ERROR", "WARNING"]


def test_too_many_unflushed_messages_reject_puts_until_some_are_flushed(state, availability):
    availability.fall_behind(10)
    assert not state.is_writable
    assert availability.text() == "read-only: 10 messages wait for the disk"

    availability.catch_up()

    assert (state.is_writable, availability.text()) == (True, "running")


def test_a_failed_write_rejects_all_later_ones_and_names_the_first(state, availability):
    availability.fill_disk()
    availability.fail(OSError(errno.EIO, "first"))
    availability.fail(OSError(errno.EIO, "second"))

    availability.free_disk(10.0)

    assert not state.is_writable
    assert "first; restart the broker" in availability.text()


def test_ending_one_reason_does_not_end_another(state, availability):
    availability.fill_disk()
    availability.fall_behind(10)

    availability.catch_up()
    assert not state.is_writable
    availability.free_disk(10.0)
    assert state.is_writable
