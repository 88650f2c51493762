"""The lake's process: in the appliance where it is asked for, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy import broker_file, options, programs

if TYPE_CHECKING:
    from pathlib import Path


def names(data: Path, **environment: str) -> list[str]:
    """Return the processes that start, in their order."""
    asked = options.parse([], {"TREBUCHET_DATA": str(data), **environment})
    broker = broker_file.settings(broker_file.effective_file(None, data))
    chosen = programs.chosen(asked, broker, None, with_queue=True)
    assert programs.variables(asked, broker, "")["TREBUCHET_LAKE_BROKER"] == broker.name
    return [one.name for one in sorted(chosen, key=lambda one: one.priority)]


@pytest.mark.parametrize("text", ["", "false", "off", "0", "No"])
def test_no_lake_is_kept_unless_it_is_asked_for(tmp_path: Path, text: str) -> None:
    assert "lake" not in names(tmp_path, TREBUCHET_LAKE=text)


@pytest.mark.parametrize("text", ["true", "/data/lake", "s3://bucket/lake"])
def test_a_lake_is_kept_beside_the_collector(tmp_path: Path, text: str) -> None:
    found = names(tmp_path, TREBUCHET_LAKE=text)

    assert found == ["broker", "web", "collector", "lake", "worker", "beat"]
