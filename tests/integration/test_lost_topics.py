"""Rules for a store whose topics.json was lost: the broker reports it, and verify rebuilds it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.__main__ import main
from broker_core.errors import StoreError
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.verify.verifier import verify
from tests.support.broker import running_broker
from tests.support.client import Client, json_body, messages

if TYPE_CHECKING:
    from pathlib import Path

QUEUES = 3


@pytest.fixture
async def topics_json(tmp_path: Path) -> Path:
    """Return the topics.json of a stopped broker: T with 3 queues and 5 messages, U with 1."""
    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        for topic, queues in (("T", QUEUES), ("U", 1)):
            await create(client, topic, queues)
        for _ in range(5):
            assert (await client.send("T", queue_id=1)).code == ResponseCode.SUCCESS
        await client.send("U", queue_id=0)
        await client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="g",
            topic="T",
            queueId=QUEUES - 1,
            commitOffset=0,
        )
        await client.shutdown()
    return tmp_path / "store" / "config" / "topics.json"


async def create(client: Client, topic: str, queues: int) -> None:
    answer = await client.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=queues,
        writeQueueNums=queues,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order="true",
    )
    assert answer.code == ResponseCode.SUCCESS


def lose(topics_json: Path) -> None:
    for path in topics_json.parent.glob("topics.json*"):
        path.unlink()


def write(topics_json: Path, text: str, backup: str | None = None) -> None:
    lose(topics_json)
    topics_json.write_text(text)
    if backup is not None:
        topics_json.with_name("topics.json.bak").write_text(backup)


def rebuild(topics_json: Path, *more: str) -> int:
    return main(["verify", "--rebuild-topics", str(topics_json.parent.parent), *more])


def names_beside(path: Path) -> list[str]:
    return [each.name for each in path.parent.iterdir()]


def table_of(topics_json: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(topics_json.read_text())["topicConfigTable"]
    return table


async def runtime_info(directory: Path) -> dict[str, str]:
    async with running_broker(directory) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        await client.shutdown()
    table: dict[str, str] = json_body(answer)["table"]
    return table


async def test_a_broker_lists_missing_topics_and_the_command_that_creates_them(
    topics_json: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lose(topics_json)

    info = await runtime_info(tmp_path)

    assert info["unreachableMessages"] == "6"
    assert json.loads(info["unreachableTopics"]) == {
        "T": {"queueNums": 1, "messages": 5},
        "U": {"queueNums": 1, "messages": 1},
    }
    assert "topics.json is missing" in caplog.text
    assert "T (messages=5 queues=1), U (messages=1 queues=1)" in caplog.text
    assert f"verify --rebuild-topics {tmp_path / 'store'}" in caplog.text


async def test_a_broker_with_all_its_topics_logs_nothing(
    topics_json: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    info = await runtime_info(tmp_path)

    assert (info["unreachableMessages"], info["unreachableTopics"]) == ("0", "{}")
    assert "rebuild" not in caplog.text


async def test_verify_counts_messages_of_missing_topics_but_not_of_deleted_ones(
    topics_json: Path, tmp_path: Path
) -> None:
    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="U")
        await client.shutdown()
    assert verify(tmp_path / "store").unreachable == {}

    lose(topics_json)

    report = verify(tmp_path / "store")
    assert report.unreachable == {"T": {"queues": 1, "messages": 5}}
    assert json.loads(report.as_json())["unreachable"] == report.unreachable
    assert report.is_sound


async def test_a_preview_shows_each_change_and_applies_none(
    topics_json: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lose(topics_json)

    assert rebuild(topics_json) == 0

    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "add T: queues=3 perm=6 order=false",
        "add U: queues=1 perm=6 order=false",
        f"write {topics_json} with 2 topics",
    ]
    assert "--yes" in printed.err
    assert topics_json.name not in names_beside(topics_json)


async def test_a_rebuilt_file_makes_all_messages_readable(
    topics_json: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lose(topics_json)

    assert rebuild(topics_json, "--yes") == 0

    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        assert len(messages(await client.pull("T", queue_id=1))) == 5
        assert len(messages(await client.pull("U", queue_id=0))) == 1
        await client.shutdown()
    assert table_of(topics_json)["T"]["readQueueNums"] == QUEUES
    capsys.readouterr()
    assert rebuild(topics_json, "--yes") == 0
    assert "nothing to do" in capsys.readouterr().out


async def test_topics_in_the_file_keep_their_settings_and_read_all_their_queues(
    topics_json: Path, tmp_path: Path
) -> None:
    lose(topics_json)
    async with running_broker(tmp_path) as broker:
        client = Client(f"127.0.0.1:{broker.listen_port}")
        await create(client, "T", 1)
        await client.shutdown()

    rebuild(topics_json, "--yes")

    found = table_of(topics_json)["T"]
    assert (found["readQueueNums"], found["writeQueueNums"], found["order"]) == (2, 1, True)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"topicConfigTable":{"T":{"perm":"many"}}}'])
async def test_a_damaged_file_ends_the_start_with_the_command_to_set_it_aside(
    topics_json: Path, tmp_path: Path, text: str
) -> None:
    write(topics_json, text)

    with pytest.raises(StoreError, match="verify --rebuild-topics"):
        async with running_broker(tmp_path):
            pass
    rebuild(topics_json, "--yes")

    assert topics_json.with_name("topics.json.damaged").read_text() == text
    assert {"T", "U"} <= table_of(topics_json).keys()
    assert (await runtime_info(tmp_path))["unreachableMessages"] == "0"


async def test_the_backup_of_a_damaged_file_is_used(topics_json: Path) -> None:
    good = table_of(topics_json)
    write(topics_json, "{", backup=json.dumps({"topicConfigTable": good}))

    rebuild(topics_json, "--yes")

    assert table_of(topics_json)["T"] == good["T"]


async def test_invalid_queue_entries_become_no_topics(topics_json: Path) -> None:
    lose(topics_json)
    queues = topics_json.parent.parent / "consumequeue"
    for name in ("lost+found/0", "Empty/0", "SCHEDULE_TOPIC_XXXX/0", "Stray/70000", "Stray/x"):
        (queues / name).mkdir(parents=True)
    (queues / "Empty" / "0" / ".DS_Store").touch()
    for name in ("SCHEDULE_TOPIC_XXXX/0", "Stray/70000", "Stray/x"):
        (queues / name / ("0" * 20)).touch()

    rebuild(topics_json, "--yes")

    assert table_of(topics_json).keys() == {"T", "U"}


async def test_the_store_of_a_running_broker_is_not_rebuilt(
    topics_json: Path, tmp_path: Path
) -> None:
    lose(topics_json)
    command = ["-m", "broker_core", "verify", "--rebuild-topics", "--yes", str(tmp_path / "store")]

    async with running_broker(tmp_path):
        # Another process must hold the lock: a process can lock its own file again.
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stderr=asyncio.subprocess.PIPE
        )
        _, stderr = await process.communicate()

    assert process.returncode == 1
    assert b"in use by another process" in stderr


def test_yes_without_a_rebuild_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["verify", "--yes", str(tmp_path)])
