"""deploy/up says in one sentence why it starts nothing, and exits with 2."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.support.appliance import Appliance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


ABOUT_COMPILING = ("Compiled broker_core/native/", "The appliance runs without compiled code")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def refusal(appliance: Appliance) -> str:
    """Run a command that is expected to refuse; return its only line.

    A checkout with an outdated compiled part first prints whether it was compiled.
    """
    code = appliance.run_to_end()
    text = appliance.words.strip().splitlines()
    lines = [line for line in text if not line.startswith(ABOUT_COMPILING)]
    assert code == 2, appliance.words
    assert len(lines) == 1, appliance.words
    return lines[0]


@pytest.mark.parametrize("key", ["listenPort", "namesrvListenPort", "grpcListenPort"])
def test_a_broker_port_in_use_is_named(tmp_path: Path, taken_port: int, key: str) -> None:
    appliance = Appliance(tmp_path)
    appliance.set_keys(**{key: taken_port})

    line = refusal(appliance)

    assert f"Port {taken_port} of 127.0.0.1" in line
    assert key in line
    assert "in use" in line
    if key == "grpcListenPort":
        assert line.endswith("to another port, or to 0 to turn it off.")


def test_a_console_port_in_use_is_named(tmp_path: Path, taken_port: int) -> None:
    line = refusal(Appliance(tmp_path, TREBUCHET_WEB=f"127.0.0.1:{taken_port}"))

    assert f"Port {taken_port} of 127.0.0.1" in line
    assert "console (--web)" in line


def test_spark_without_java_is_rejected(tmp_path: Path) -> None:
    given = {"TREBUCHET_PIPELINE_ENGINE": "spark", "JAVA_HOME": "/nowhere"}

    line = refusal(Appliance(tmp_path, **given))

    assert line.startswith("TREBUCHET_PIPELINE_ENGINE is spark, but JAVA_HOME is /nowhere")


def test_options_take_precedence_over_variables(tmp_path: Path, taken_port: int) -> None:
    appliance = Appliance(tmp_path, TREBUCHET_DAAT="elsewhere")
    appliance.arguments = ["--web", f"127.0.0.1:{taken_port}", "--data", str(tmp_path / "chosen")]
    code = appliance.run_to_end()
    last = appliance.words.strip().splitlines()[-1]

    assert code == 2, appliance.words
    assert f"Port {taken_port} of 127.0.0.1" in last
    assert (tmp_path / "chosen").is_dir()
    assert not appliance.data.exists()
    warning = "WARNING unknown setting TREBUCHET_DAAT ignored; did you mean TREBUCHET_DATA?"
    assert warning in appliance.words


def test_an_unknown_option_is_rejected_in_one_sentence(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path)
    appliance.arguments = ["--dat", "elsewhere"]

    line = refusal(appliance)

    assert line.startswith("Unrecognized arguments: --dat elsewhere;")


def test_one_port_for_two_purposes_is_rejected(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path)
    appliance.set_keys(namesrvListenPort=appliance.web_port)

    line = refusal(appliance)

    assert f"Port {appliance.web_port}" in line
    assert "namesrvListenPort" in line
    assert "console (--web)" in line


@pytest.mark.parametrize("web", ["8000", "127.0.0.1:", "127.0.0.1:http", ":8000", "h:70000"])
def test_an_invalid_address_is_rejected(tmp_path: Path, web: str) -> None:
    line = refusal(Appliance(tmp_path, TREBUCHET_WEB=web))

    assert "TREBUCHET_WEB" in line
    assert web in line


@pytest.mark.parametrize(
    ("key", "value"), [("flushDiskType", "SOMETIMES"), ("namesrvAddr", "localhost")]
)
def test_an_invalid_broker_configuration_is_rejected(tmp_path: Path, key: str, value: str) -> None:
    appliance = Appliance(tmp_path)
    appliance.set_keys(**{key: value})

    line = refusal(appliance)

    assert key in line
    assert value in line


def test_a_missing_broker_configuration_is_rejected(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path)
    appliance.file.unlink()

    assert str(appliance.file) in refusal(appliance)


def test_a_data_directory_that_cannot_be_created_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    line = refusal(Appliance(tmp_path, TREBUCHET_DATA=str(tmp_path / "file" / "data")))

    assert str(tmp_path / "file" / "data") in line


def test_an_invalid_database_is_rejected(tmp_path: Path) -> None:
    line = refusal(Appliance(tmp_path, DATABASE_URL="nonsense://"))

    assert "DATABASE_URL" in line


def test_a_weak_password_for_the_administrator_is_rejected(tmp_path: Path) -> None:
    line = refusal(Appliance(tmp_path, TREBUCHET_ADMIN_PASSWORD="12345"))

    assert "TREBUCHET_ADMIN_PASSWORD was rejected" in line
    assert "12345" not in line


def test_a_broker_that_cannot_start_ends_the_start_with_its_own_error(tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts: [{accessKey: administrator")
    accounts.chmod(0o600)
    appliance = Appliance(tmp_path)
    appliance.set_keys(aclEnable="true", aclFile=accounts)

    code = appliance.run_to_end()

    assert code == 1, appliance.words
    assert str(accounts) in appliance.words.strip().splitlines()[-1]
    assert "Traceback" not in appliance.words
    assert not appliance.is_running
