from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core import config
from deploy import broker_file

if TYPE_CHECKING:
    from pathlib import Path


def store_of(file: Path) -> str:
    configuration, errors = config.load(str(file))
    assert errors == []
    return configuration.store.store_path_root_dir


def test_without_a_file_one_is_written_once(tmp_path: Path) -> None:
    file = broker_file.effective_file(None, tmp_path)
    file.write_text(file.read_text() + "maxMessageSize=1000\n")

    again = broker_file.effective_file(None, tmp_path)

    assert file == again == tmp_path / "broker.conf"
    assert "maxMessageSize=1000" in again.read_text()
    assert store_of(again) == str(tmp_path / "store")


def test_a_file_that_names_a_store_is_used_as_it_is(tmp_path: Path) -> None:
    given = tmp_path / "given.conf"
    given.write_text(f"storePathRootDir={tmp_path / 'mine'}\n")

    assert broker_file.effective_file(given, tmp_path / "data") == given


def test_a_file_that_names_no_store_gets_one_in_the_data_directory(tmp_path: Path) -> None:
    given = tmp_path / "given.conf"
    given.write_text("listenPort=1234\n#storePathRootDir=/elsewhere")

    file = broker_file.effective_file(given, tmp_path / "data")

    assert file != given
    assert store_of(file) == str(tmp_path / "data" / "store")
    assert "listenPort=1234" in file.read_text()


def test_a_path_with_characters_that_properties_escape_stays_the_path(tmp_path: Path) -> None:
    data = tmp_path / "a b=c:d\\e"

    file = broker_file.effective_file(None, data)

    assert store_of(file) == str(data / "store")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(broker_file.BrokerFileError, match=r"none\.conf cannot be read"):
        broker_file.effective_file(tmp_path / "none.conf", tmp_path)


def test_the_default_configuration_says_nothing_that_the_broker_does_not_know() -> None:
    configuration, errors = config.load(str(broker_file.TEMPLATE))

    assert errors == []
    assert configuration.warnings == ()
    assert configuration.inert == ()


def test_the_commented_keys_of_the_default_configuration_are_known(tmp_path: Path) -> None:
    text = broker_file.TEMPLATE.read_text()
    commented = [line[1:] for line in text.splitlines() if line.startswith("#") and line[1] != " "]
    assert commented
    file = tmp_path / "all.conf"
    file.write_text("\n".join(commented))

    configuration, errors = config.load(str(file))

    assert errors == []
    assert configuration.warnings == ()
