"""The examples of docs/lake.md work as written."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from analytics.lake import iceberg
from analytics.lake.__main__ import main
from analytics.lake.bodies import BodyRules
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder
from tests.support.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = (ROOT / "docs" / "lake.md").read_text()
PLACE = "/data/trebuchet/lake"
BENCH = "python -m tools.bench.analytics"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)


def test_the_examples_read_the_lake(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(30, ("orders", "orders", "bills"))
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root)
    lake.take_all()
    lake.catch_up()
    iceberg.follow(replace(lake.place, has_iceberg=True))
    names: dict[str, Any] = {}

    for code in blocks("python"):
        assert PLACE in code or names
        exec(code.replace(PLACE, str(lake.directory)), names)

    sizes = {
        topic: sum(one.size for one in builder.stored if one.topic == topic)
        for topic in ("orders", "bills")
    }
    assert names["busiest"] == [("orders", 20, sizes["orders"]), ("bills", 10, sizes["bills"])]
    assert len(names["found"]) == 30
    assert names["table"].num_rows == names["sent"].num_rows == 30
    # Each was created at START_MS - 5, and one was stored each second.
    assert names["percentile_99"] == [("bills", 29_695), ("orders", 28_671)]


def test_the_example_of_rules_is_valid(tmp_path: Path) -> None:
    (rules,) = blocks("toml")
    file = tmp_path / "bodies.toml"
    file.write_text(rules)

    assert set(BodyRules.read(file).by_topic) == set(tomllib.loads(rules)["bodies"])


@pytest.mark.parametrize(
    "line", [line for block in blocks("sh") for line in block.splitlines() if line]
)
def test_the_commands_are_parsed(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    if line.startswith(BENCH):
        command = [sys.executable, *line.split()[1:], "--help"]
        assert subprocess.run(command, cwd=ROOT).returncode == 0
        return
    _, _, given = line.partition(" lake ")
    arguments = given.split()

    with pytest.raises(SystemExit, match="0"):
        main([*arguments, "--help"], {})

    assert arguments[0] in capfd.readouterr().out
