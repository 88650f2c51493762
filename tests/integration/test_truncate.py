"""`python -m broker_core truncate`: a stopped broker's log is cut at the operator's offset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from broker_core.__main__ import main
from tests.support.broker import COMMIT_LOG_BYTES, running_broker
from tests.support.broker_process import BrokerProcess
from tests.support.builders import put, read_all

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.broker import Broker

COUNT = 5


def a_file(directory: Path, *lines: str) -> str:
    directory.mkdir(exist_ok=True)
    file = directory / "broker.conf"
    keys = (
        f"storePathRootDir={directory / 'store'}",
        f"mappedFileSizeCommitLog={COMMIT_LOG_BYTES}",
        "maxHashSlotNum=1000",
        "maxIndexNum=4000",
        *lines,
    )
    file.write_text("\n".join(keys) + "\n")
    return str(file)


def fill(broker: Broker) -> list[int]:
    """Put messages; return the offset of each, and the end of the last one."""
    store = broker.storage.store
    for number in range(COUNT):
        put(store, body=b"%d" % number, keys=f"k{number}")
    queue = store.files.queues.find("TopicTest", 0)
    assert queue is not None
    units = [queue.unit(queue_offset) for queue_offset in range(COUNT)]
    return [unit[0] for unit in units if unit is not None] + [store.max_commit_log_offset]


async def test_the_rest_is_saved_and_the_next_start_truncates_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_file(tmp_path / "b")
    async with running_broker(tmp_path / "b") as broker:
        offsets = fill(broker)
    at, end = offsets[3], offsets[-1]

    assert main(["truncate", "-c", file, "--at", str(at)]) == 0

    (place,) = (tmp_path / "b/store/diverged").iterdir()
    words = f"saved {end - at} bytes in {place}; the next start cuts the log at {at}\n"
    assert capsys.readouterr().out == words
    lines = (place / "messages.jsonl").read_text().splitlines()
    assert [json.loads(line)["keys"] for line in lines] == ["k3", "k4"]
    assert json.loads((place / "manifest.json").read_text())["from"] == at
    async with running_broker(tmp_path / "b") as broker:
        store = broker.storage.store
        assert store.max_commit_log_offset == at
        assert [one.body for one in read_all(store)] == [b"0", b"1", b"2"]
        assert put(store, body=b"new").queue_offset == 3


async def test_the_same_change_twice_is_saved_once(tmp_path: Path) -> None:
    file = a_file(tmp_path / "b")
    async with running_broker(tmp_path / "b") as broker:
        at = fill(broker)[2]

    assert main(["truncate", "-c", file, "--at", str(at)]) == 0
    assert main(["truncate", "-c", file, "--at", str(at)]) == 0

    assert len(list((tmp_path / "b/store/diverged").iterdir())) == 1
    async with running_broker(tmp_path / "b") as broker:
        assert broker.storage.store.max_commit_log_offset == at


async def test_a_log_that_ends_there_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_file(tmp_path / "b")
    async with running_broker(tmp_path / "b") as broker:
        end = fill(broker)[-1]

    assert main(["truncate", "-c", file, "--at", str(end)]) == 0

    assert capsys.readouterr().out == f"the log already ends at {end}\n"
    assert not (tmp_path / "b/store/diverged").exists()


@pytest.mark.parametrize("beyond", [-1, 1 << 40])
async def test_an_offset_missing_in_the_log_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], beyond: int
) -> None:
    file = a_file(tmp_path / "b")
    async with running_broker(tmp_path / "b") as broker:
        end = fill(broker)[-1]

    assert main(["truncate", "-c", file, "--at", str(beyond)]) == 1

    assert f"the log holds offsets 0 to {end}; {beyond} is outside" in capsys.readouterr().err
    async with running_broker(tmp_path / "b") as broker:
        assert broker.storage.store.max_commit_log_offset == end


def test_a_running_broker_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker = BrokerProcess(tmp_path / "b")
    broker.start()
    try:
        assert main(["truncate", "-c", str(broker.file), "--at", "0"]) == 1
        assert broker.is_running
    finally:
        broker.kill()

    assert "in use by another process" in capsys.readouterr().err
    assert not (broker.store / "diverged").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "-c/--configFile, --at"),
        (["-c", "FILE"], "--at"),
        (["--at", "7"], "-c/--configFile"),
        (["-c", "FILE", "--at", "seven"], "invalid int value: 'seven'"),
        (["-c", "FILE", "--at", "7", "more"], "unrecognized arguments: more"),
    ],
)
def test_an_incomplete_command_line_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    file = a_file(tmp_path)

    with pytest.raises(SystemExit) as ended:
        main(["truncate", *(file if one == "FILE" else one for one in arguments)])

    assert ended.value.code == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_a_file_with_mistakes_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_file(tmp_path, "brokerRole=KING")

    assert main(["truncate", "-c", file, "--at", "0"]) == 2

    assert "brokerRole" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
