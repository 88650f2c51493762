"""A report about a topic that never existed ends with an error message before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from analytics.arguments import EXIT_FAILED
from analytics.errors import ReportError
from analytics.reports.catalog import REPORTS
from analytics.request import Request
from analytics.topics import require_topic
from tests.analytics import run_report
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path


def request_of(store: Path, topic: str | None, **changed: Any) -> Request:
    parameters = {} if topic is None else {"topic": topic}
    return Request(REPORTS["traffic"], store, store / "out", parameters=parameters, **changed)


def test_the_program_rejects_a_nonexistent_topic(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store").put_many(10).write()

    code, events, _ = run_report.run(
        "traffic", "--store", store, "--out", tmp_path / "out", "--topic", "ordres"
    )

    assert code == EXIT_FAILED
    assert events[-1:] == [
        {"event": "failed", "message": "The topic ordres doesn't exist. Check its spelling."}
    ]
    assert not (tmp_path / "out").exists()


def test_a_topic_in_the_store_or_lake_can_be_queried(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "old").put_many(10, ("deleted", "orders"))
    lake = Lake(tmp_path / "lake", builder.write())
    lake.take_all()
    lake.catch_up()
    store = StoreBuilder(tmp_path / "store").put_many(10).write()

    for topic in (None, "orders", "RMQ_SYS_TRACE_TOPIC"):
        require_topic(request_of(store, topic))
    require_topic(request_of(store, "deleted", lake=str(lake.directory)))
    for lake_uri in (None, str(lake.directory), str(tmp_path / "empty")):
        with pytest.raises(ReportError, match="The topic ordres doesn't exist"):
            require_topic(request_of(store, "ordres", lake=lake_uri))
    with pytest.raises(ReportError, match="The topic deleted doesn't exist"):
        require_topic(request_of(store, "deleted"))
