from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.config.loading import load
from deploy.brokers import broker_file
from deploy.processes.programs import own_brokers

if TYPE_CHECKING:
    from pathlib import Path


def store_of(file: Path) -> str:
    configuration, errors = load(str(file))
    assert errors == []
    return configuration.store.store_path_root_dir


def test_without_a_file_one_is_written_once(tmp_path: Path) -> None:
    file = broker_file.effective_file(None, tmp_path)
    file.write_text(file.read_text() + "maxMessageSize=1000\n")

    again = broker_file.effective_file(None, tmp_path)

    assert file == again == tmp_path / "broker.conf"
    assert "maxMessageSize=1000" in again.read_text()
    assert store_of(again) == str(tmp_path / "store")


def test_a_file_that_names_a_store_is_used_unchanged(tmp_path: Path) -> None:
    given = tmp_path / "given.conf"
    given.write_text(f"storePathRootDir={tmp_path / 'mine'}\n")

    assert broker_file.effective_file(given, tmp_path / "data") == given


def test_secrets_in_a_copied_file_readable_by_others_cause_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "given.conf"
    given.write_text("namesrvAccessKey=broker-b\nnamesrvSecretKey=s3cret-key\n")
    given.chmod(0o640)

    broker_file.effective_file(given, tmp_path / "data")

    output = capsys.readouterr().err
    assert output.startswith("WARNING")
    assert f"mode 0640 gives other users access; run: chmod 600 {given}" in output
    assert len(output.splitlines()) == 1
    assert "s3cret-key" not in output


def test_a_file_that_names_no_store_gets_one_in_the_data_directory(tmp_path: Path) -> None:
    given = tmp_path / "given.conf"
    given.write_text("listenPort=1234\n#storePathRootDir=/elsewhere")

    file = broker_file.effective_file(given, tmp_path / "data")

    assert file != given
    assert store_of(file) == str(tmp_path / "data" / "store")
    assert "listenPort=1234" in file.read_text()


def test_a_path_with_escaped_characters_stays_the_same(tmp_path: Path) -> None:
    data = tmp_path / "a b=c:d\\e"

    file = broker_file.effective_file(None, data)

    assert store_of(file) == str(data / "store")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(broker_file.BrokerFileError, match=r"Can't read .*none\.conf"):
        broker_file.effective_file(tmp_path / "none.conf", tmp_path)


def test_the_default_configuration_only_has_keys_known_to_the_broker() -> None:
    configuration, errors = load(str(broker_file.TEMPLATE))

    assert errors == []
    assert configuration.warnings == ()
    assert configuration.without_effect == ()


def test_the_commented_keys_of_the_default_configuration_are_known(tmp_path: Path) -> None:
    text = broker_file.TEMPLATE.read_text()
    commented = [line[1:] for line in text.splitlines() if line.startswith("#") and line[1] != " "]
    assert commented
    file = tmp_path / "all.conf"
    file.write_text("\n".join(commented))

    configuration, errors = load(str(file))

    assert errors == []
    assert configuration.warnings == ()


@pytest.mark.parametrize(
    ("keys", "console_namesrv"),
    [
        ("", "127.0.0.1:9876"),
        ("adminListenAddress=127.0.0.1:10921", "127.0.0.1:10921"),
        ("adminListenAddress=/run/trebuchet/admin.sock", "127.0.0.1:9876"),
        ("adminListenAddress=127.0.0.1:10921\nnamesrvAddr=10.0.0.9:9876", "10.0.0.9:9876"),
    ],
)
def test_the_console_administers_at_its_listener(
    keys: str, console_namesrv: str, tmp_path: Path
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path / 'store'}\n{keys}\n")

    found = broker_file.settings(file)

    assert found.console_namesrv == console_namesrv
    assert found.namesrv == ("10.0.0.9:9876" if "namesrvAddr" in keys else "127.0.0.1:9876")


def test_the_console_recognizes_its_own_broker_at_any_address(tmp_path: Path) -> None:
    keys = f"storePathRootDir={tmp_path / 'store'}\nbrokerIP1=10.0.0.7\nlistenPort=12911\n"
    public, led = tmp_path / "public.conf", tmp_path / "led.conf"
    public.write_text(keys)
    led.write_text(f"{keys}adminListenAddress=127.0.0.1:12921\n")

    known = own_brokers({"broker": broker_file.settings(public)}, "10.0.0.8:12911;10.0.0.9:12911")
    administered = own_brokers({"broker": broker_file.settings(led)}, "")

    assert {"10.0.0.7:12911", "10.0.0.8:12911", "10.0.0.9:12911"} <= set(known.split(";"))
    assert administered.split(";") == ["10.0.0.7:12911", "127.0.0.1:12921"]
