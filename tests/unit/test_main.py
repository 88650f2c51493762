from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from broker_core.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_p_prints_the_whole_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "brokerName=b\nsendMessageThreadPoolNums=9\n"
    file = write(tmp_path / "broker.conf", text)

    assert main(["-c", file, "-p"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert "brokerName=b" in lines
    assert "listenPort=10911" in lines
    assert "# sendMessageThreadPoolNums=9 (accepted, without effect here)" in lines


def test_m_prints_important_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m"]) == 0

    keys = [line.partition("=")[0] for line in capsys.readouterr().out.splitlines()]
    assert "listenPort" in keys
    assert "flushConsumeQueueLeastPages" not in keys


def test_m_prints_each_key_once_and_p_prints_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    main(["-m"])
    important = capsys.readouterr().out.splitlines()
    main(["-p"])

    assert len(set(important)) == len(important)
    assert set(important) < set(capsys.readouterr().out.splitlines())


def test_n_takes_precedence_over_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "broker.conf", "namesrvAddr=127.0.0.1:1\n")

    assert main(["-c", file, "-n", "127.0.0.1:2", "-m"]) == 0

    assert "namesrvAddr=127.0.0.1:2\n" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "port"), [("", 8081), ("grpcListenPort=0\n", 0)])
def test_the_file_takes_precedence_over_a_default(
    text: str, port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "broker.conf", text)

    assert main(["-c", file, "--default", "grpcListenPort=8081", "-m"]) == 0

    assert f"grpcListenPort={port}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["-n", "nowhere"], ["-c", "/nonexistent.conf"], ["verify", "/nonexistent"]]
)
def test_an_invalid_value_is_reported_in_one_sentence_with_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2

    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert not captured.out


def test_each_invalid_value_has_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "broker.conf", "listenPort=x\nflushDiskType=y\n")

    assert main(["-c", file]) == 2

    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_standalone_name_server_has_its_own_port(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "namesrv.conf", f"kvConfigPath={tmp_path}/kv.json\n")

    assert main(["namesrv", "-c", file, "-p"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "bindAddress=127.0.0.1",
        "listenPort=9876",
        f"kvConfigPath={tmp_path}/kv.json",
        "productEnvName=center",
        "orderMessageEnable=false",
        "returnOrderTopicConfigToBroker=true",
        "deleteTopicWithBrokerRegistration=false",
        "enableAllTopicList=true",
        "enableTopicList=true",
    ]


def test_verify_prints_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "commitlog").mkdir()

    code = main(["verify", str(tmp_path)])

    report = json.loads(capsys.readouterr().out)
    assert code == (0 if report["sound"] else 1)
    assert report["store"] == str(tmp_path)
