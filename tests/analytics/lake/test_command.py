"""The command line of the lake: output, rejections and queries."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from analytics.lake.__main__ import main
from analytics.lake.tables import MESSAGES
from tests.analytics.lake.lakes import Lake, put_offsets
from tests.analytics.store_builder import START_MS, StoreBuilder
from tests.support.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 120


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "store").put_many(20)
    builder.write()
    return builder


@pytest.fixture
def environment(builder: StoreBuilder, tmp_path: Path) -> dict[str, str]:
    return {"TREBUCHET_DATA": str(tmp_path), "TREBUCHET_STORE": str(builder.root)}


def test_the_commands_of_an_operator(
    environment: dict[str, str], builder: StoreBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    def output_of(*arguments: str, code: int = 0) -> str:
        assert main(arguments, environment) == code
        return capsys.readouterr().out

    waiting: dict[str, Any] = json.loads(output_of("status", "--json"))
    assert waiting["pending_since_ms"] == START_MS
    assert "20 messages in 1 batches" in output_of("ingest")
    assert "has each of these messages once" in output_of("verify")
    assert "Nothing was changed" in output_of("rebuild")
    assert "20 messages of broker-a were removed" in output_of("rebuild", "--yes")
    assert "20 messages in 1 batches" in output_of("ingest")
    assert "No message" in output_of("forget", "unknown")
    assert "Nothing was changed" in output_of("rebuild", "--gold")
    assert "was counted again" in output_of("rebuild", "--gold", "--yes")
    assert "20 messages have lost their content" in output_of("forget", "FD00")
    assert "Maintenance is complete" in output_of("maintain")
    assert f"watermark   {builder.position}" in output_of("status")
    found: dict[str, Any] = json.loads(output_of("status", "--json"))
    assert (found["watermark"], found["pending_bytes"]) == (builder.position, 0)
    assert found["pending_since_ms"] is None
    assert [table["rows"] for table in found["tables"]] == [20, 0, 0, 0, 20, 2, 20, 0]


def test_verify_exits_with_1_if_lake_and_log_differ(
    environment: dict[str, str],
    builder: StoreBuilder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["ingest"], environment)
    lake = Lake(tmp_path / "lake", builder.root)
    table = MESSAGES.open(lake.place)
    (path,) = table.file_uris()
    MESSAGES.commit(lake.place, table, [], removed=[path.split("messages/")[1]])

    code = main(["verify"], environment)

    output = capsys.readouterr().out
    assert code == 1
    assert "20 messages aren't in the lake: offsets 0, " in output
    assert "manage.py lake rebuild --broker broker-a --yes" in output


@pytest.mark.parametrize(
    ("arguments", "changed", "sentence"),
    [
        (["status"], {"TREBUCHET_STORE": ""}, "No store is specified"),
        (["status"], {"TREBUCHET_DATA": ""}, "No lake is specified"),
        (["status"], {"TREBUCHET_STORE": "/nowhere"}, "No store at /nowhere"),
        (["status", "--broker", "a b"], {}, "isn't a valid broker name"),
        (["verify"], {}, "no data from broker-a yet"),
        (["forget", " "], {}, "No key is given"),
        (["run"], {"TREBUCHET_LAKE": "gs://x"}, "isn't a directory or an address such as s3://"),
        (["run"], {"TREBUCHET_LAKE_DAYS": "ten"}, "a number of days"),
        (["run"], {"TREBUCHET_LAKE_BODIES": "/nowhere"}, "can't be read"),
    ],
)
def test_a_rejection_is_reported_in_one_sentence(
    environment: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    changed: dict[str, str],
    sentence: str,
) -> None:
    code = main(arguments, environment | changed)

    output = capsys.readouterr().err
    assert code == 1
    assert sentence in output
    assert len(output.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["bogus"], ["forget"], ["status", "--bogus"]])
def test_invalid_arguments_are_reported_in_one_sentence(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments, {})

    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize("command", ["run", "status", "rebuild", "verify", "forget", "maintain"])
def test_each_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"], {})

    assert "--lake URI" in capsys.readouterr().out


def test_the_process_updates_the_lake_until_it_is_stopped(
    environment: dict[str, str], builder: StoreBuilder, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "analytics.lake", "run"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        text = ""
        for text in process.stderr:
            if "ingested" in text:
                break
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=SECONDS)

    assert "rows=20" in text
    assert process.returncode == 0
    assert "stopped" in rest
    assert Lake(tmp_path / "lake", builder.root).offsets() == put_offsets(builder)
