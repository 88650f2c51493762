"""Start Spark, load the classes most tests need, and stop it cleanly, for Java's class archive."""

from __future__ import annotations

import tempfile
from pathlib import Path

from analytics.session import start_spark


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        scratch = directory / "scratch"
        scratch.mkdir()
        spark = start_spark(scratch, master="local[1]")
        table = str(directory / "table")
        numbers = spark.session.range(100).selectExpr("id", "id % 7 AS rest", "string(id) AS name")
        numbers.write.parquet(table)
        read = spark.session.read.parquet(table).groupBy("rest").count()
        read.join(numbers, "rest", "left").orderBy("id").toArrow()
        spark.close_in_order()


if __name__ == "__main__":
    main()
