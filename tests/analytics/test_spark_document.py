"""docs/spark.md: its examples run, and its tables list all options and columns."""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest

from analytics.schemas import DAMAGE_COLUMN, MESSAGES
from analytics.sources import commitlog, rocketmq_options, rocketmq_writer
from analytics.sources.commitlog import CommitLogDataSource
from analytics.sources.rocketmq import RocketMqDataSource
from tests.analytics.query_draining import drained
from tests.analytics.store_builder import START_MS, StoreBuilder
from tests.support import raw_remoting
from tests.support.broker_process import BrokerProcess
from tests.support.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

DOCUMENT = (ROOT / "docs" / "spark.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
STORE, NAMESRV = "/data/rocketmq/store", "127.0.0.1:9876"
HEAD = "| option | default | |\n|---|---|---|\n"


def rows_under(head: str, start: int) -> set[str]:
    """Return the names in the first column of the table under a heading."""
    at = DOCUMENT.index(head, start) + len(head)
    table = DOCUMENT[at : DOCUMENT.index("\n\n", at)]
    return {
        name
        for line in table.splitlines()
        for name in re.findall(r"`([\w.]+)`", line.split("|")[1])
    }


def test_the_options_of_both_sources_are_reported() -> None:
    assert rows_under(HEAD, 0) == set(commitlog.OPTIONS)
    assert rows_under(HEAD, DOCUMENT.index("## Read a cluster")) == set(rocketmq_options.OPTIONS)


def test_all_columns_are_reported() -> None:
    head = "| column | type | |\n|---|---|---|\n"

    assert rows_under(head, 0) == {*MESSAGES.names, DAMAGE_COLUMN}
    assert rows_under(head, DOCUMENT.index("## Write to a topic")) == set(rocketmq_writer.COLUMNS)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    one = BrokerProcess(tmp_path / "broker")
    one.start()
    for topic in ("orders", "receipts"):
        raw_remoting.create_topic(one.port, topic, queues=2)
    with raw_remoting.RawClient(one.port) as client:
        for number in range(10):
            fields = raw_remoting.send_fields("orders", queue_id=number % 2, properties="TAGS\x01t")
            client.ask(raw_remoting.SEND_MESSAGE, fields, b"order %d" % number)
    yield one
    one.stop()


@pytest.fixture
def wheel_beside_it(wheel: Path, spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    """The wheel in the test's directory; the session uses the checkout's sources afterwards."""
    shutil.copy(wheel, tmp_path)
    before = list(sys.path)
    yield
    sys.path[:] = before
    register_those_of_the_checkout(spark)


def register_those_of_the_checkout(spark: SparkSession) -> None:
    for source in (CommitLogDataSource, RocketMqDataSource):
        spark.dataSource.register(source)


@pytest.mark.spark
@pytest.mark.usefixtures("wheel_beside_it")
def test_its_examples_run(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(30)
    builder.overwrite(builder.stored[9].commit_log_offset, bytes(8))
    names: dict[str, Any] = {"spark": spark}
    sound = StoreBuilder(tmp_path / "sound").put_many(30).write()

    for example in EXAMPLES:
        if "readStream" in example:
            # Spark ships no files to the process of a stream.
            register_those_of_the_checkout(spark)
        # The examples about damage read a damaged store.
        store = builder.write() if "damage" in example else sound
        text = example.replace(STORE, str(store)).replace(NAMESRV, broker.namesrv)
        text = text.replace('"trebuchet_spark', f'"{tmp_path}/trebuchet_spark')
        exec(compile(text, "docs/spark.md", "exec"), names)

    def counted(name: str) -> int:
        frame: DataFrame = names[name]
        return frame.count()

    assert {row.topic: row["count"] for row in names["per_topic"].collect()} == {
        "orders": 15,
        "bills": 15,
    }
    late = [one for one in builder.stored if one.topic == "orders"]
    assert late[0].store_timestamp == START_MS == 1795251442000
    assert [counted(name) for name in ("sizes", "late", "with_damage", "damages")] == [
        30,
        len(late),
        30,
        1,
    ]
    assert names["damaged_ranges"] == 1
    assert [counted(name) for name in ("orders", "some")] == [10, 9]
    assert _receipts(spark, broker) == ["a body"]
    names["send"](names["orders"], 7)
    assert len(_receipts(spark, broker)) == 11
    query = drained(
        names["stream"]
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint")),
        str(tmp_path / "out"),
    )
    assert query.recentProgress
    assert spark.read.parquet(str(tmp_path / "out")).count() == 30


def _receipts(spark: SparkSession, broker: BrokerProcess) -> list[str]:
    frame = (
        spark.read.format("rocketmq")
        .options(namesrvAddr=broker.namesrv, subscribe="receipts")
        .load()
    )
    return [bytes(row.body).decode() for row in frame.select("body").collect()]
