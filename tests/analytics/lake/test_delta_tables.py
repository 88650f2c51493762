"""The tables' metadata, as any Delta reader sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from analytics.lake.columns import DESCRIPTIONS
from analytics.lake.gold_tables import EVERY_TABLE
from analytics.lake.repair import forget
from analytics.lake.tables import COMMITS_A_CHECKPOINT, ENGINE, MESSAGES
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of three batches, with one forgotten message."""
    directory = tmp_path_factory.mktemp("lake")
    builder = StoreBuilder(directory / "store")
    for number in range(30):
        builder.put("orders", properties=b"KEYS\x01k%d\x02UNIQ_KEY\x01U%d" % (number, number))
    builder.write()
    lake = Lake(directory / "lake", builder.root, batch_bytes=1_500)
    assert len(lake.take_all()) == 3
    lake.catch_up()
    forget(lake.place, "k7")
    return lake


def test_each_table_has_a_description_properties_and_a_comment_for_each_column(lake: Lake) -> None:
    for table in EVERY_TABLE:
        if table.name in {"bronze.samples", "bronze.gaps"}:
            continue  # nothing was written to them
        opened = table.existing(lake.place)
        about = opened.metadata()

        assert (about.name, about.description) == (table.name, table.description)
        assert about.partition_columns == list(table.partition_by)
        assert about.configuration == {
            "delta.checkpointInterval": str(COMMITS_A_CHECKPOINT),
            "delta.dataSkippingStatsColumns": ",".join(table.statistics),
            "delta.deletedFileRetentionDuration": "interval 1 days",
            "delta.enableChangeDataFeed": "true",
            "delta.logRetentionDuration": "interval 1 days",
        }
        comments = {each.name: each.metadata["comment"] for each in opened.schema().fields}
        assert comments == {name: DESCRIPTIONS[name] for name in table.schema.names}


def test_a_commit_records_its_author_rows_and_files(lake: Lake) -> None:
    writes = [one for one in MESSAGES.existing(lake.place).history() if one["operation"] == "WRITE"]
    forgotten, *batches = writes

    assert [one[ENGINE] for one in batches] == ["arrow"] * 3
    metrics = [one["operationMetrics"] for one in batches]
    assert sum(int(each["numOutputRows"]) for each in metrics) == 30
    assert [(each["numFiles"], each["numRemovedFiles"]) for each in metrics] == [("1", "0")] * 3
    erased = forgotten["operationMetrics"]
    assert (erased["numFiles"], erased["numRemovedFiles"]) == ("1", "1")
    sizes = pa.table(MESSAGES.existing(lake.place).get_add_actions())["size_bytes"].to_pylist()
    assert int(erased["numOutputBytes"]) in sizes


def test_the_change_data_feed_has_each_batch_once(lake: Lake, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(12)
    builder.write()
    of_batches = Lake(tmp_path / "lake", builder.root, batch_bytes=1_500)
    batches = of_batches.take_all()
    opened = MESSAGES.existing(of_batches.place)

    changes = pa.table(opened.load_cdf(starting_version=1))

    assert set(changes["_change_type"].to_pylist()) == {"insert"}
    assert sorted(changes["commit_log_offset"].to_pylist()) == of_batches.offsets()
    versions = changes["_commit_version"].to_pylist()
    assert [versions.count(each) for each in sorted(set(versions))] == [
        batch.rows for batch in batches
    ]
