"""Deleted topics: remembered, moved back with the log's end, forgotten with their messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.store.deleted_topics import DeletedTopics
from tests.support.faulty_storage import FaultyStorage

PATH = Path("/store/deletedTopics.json")


@pytest.fixture
def storage():
    return FaultyStorage()


def opened(storage: FaultyStorage) -> DeletedTopics:
    deleted = DeletedTopics(PATH, storage)
    deleted.load()
    return deleted


def test_a_deletion_survives_a_power_cut_and_never_moves_back(storage):
    deleted = opened(storage)
    deleted.add({"A": 100, "B": 50})
    deleted.add({"A": 70, "B": 60})

    again = opened(storage.cut_power())

    assert again.all() == {"A": 100, "B": 60}
    assert (again.deleted_before("A"), again.deleted_before("C")) == (100, 0)


def test_a_power_cut_before_a_deletion_moves_it_back(storage):
    deleted = opened(storage)
    deleted.add({"A": 100, "B": 50})
    writes = storage.calls["write_atomically"]
    deleted.clamp(100)
    assert storage.calls["write_atomically"] == writes

    deleted.clamp(99)

    assert opened(storage.cut_power()).all() == {"A": 99, "B": 50}


def test_a_deletion_is_forgotten_when_all_older_data_has_expired(storage):
    deleted = opened(storage)
    deleted.add({"A": 100, "B": 50})
    writes = storage.calls["write_atomically"]
    deleted.forget_before(49)
    assert storage.calls["write_atomically"] == writes

    deleted.forget_before(50)

    assert opened(storage.cut_power()).all() == {"A": 100}
