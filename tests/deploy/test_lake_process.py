"""The lake's process: in the appliance where it is asked for, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy import broker_file, brokers, options, programs

if TYPE_CHECKING:
    from pathlib import Path


def names(data: Path, *arguments: str, **environment: str) -> list[str]:
    """Return the processes that start, in their order."""
    asked = options.parse(arguments, {"TREBUCHET_DATA": str(data), **environment})
    broker = broker_file.settings(broker_file.effective_file(None, data))
    own = brokers.settings(broker, asked)
    chosen = programs.chosen(asked, own, None, with_queue=True)
    assert programs.variables(asked, own, "")["TREBUCHET_LAKE_BROKER"] == broker.name
    return [one.name for one in sorted(chosen, key=lambda one: one.priority)]


@pytest.mark.parametrize("text", ["", "false", "off", "0", "No"])
def test_no_lake_is_kept_unless_it_is_asked_for(tmp_path: Path, text: str) -> None:
    assert "lake" not in names(tmp_path, TREBUCHET_LAKE=text)


@pytest.mark.parametrize("text", ["true", "/data/lake", "s3://bucket/lake"])
def test_a_lake_is_kept_beside_the_collector(tmp_path: Path, text: str) -> None:
    found = names(tmp_path, TREBUCHET_LAKE=text)

    assert found == ["broker", "web", "collector", "lake", "worker", "beat"]


def test_each_master_has_a_process_that_keeps_its_log_in_the_lake(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()

    found = names(tmp_path, "--brokers", "2", "--slave", TREBUCHET_LAKE="true")

    assert [name for name in found if name.startswith("lake")] == ["lake", "lake-b"]
