from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.errors import RequestRefusedError, StoreError
from broker_core.namesrv import kv_configs as kv_configs_module
from broker_core.namesrv.kv_configs import TEXT_BYTES_MAX, KvConfigs
from broker_core.storage import FileStorage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def loaded(path: Path) -> KvConfigs:
    kv_configs = KvConfigs(FileStorage(), path)
    kv_configs.load()
    return kv_configs


def test_stored_values_are_present_after_a_restart(path: Path) -> None:
    kv_configs = loaded(path)

    kv_configs.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    kv_configs.put("ORDER_TOPIC_CONFIG", "U", "broker-a:1")
    kv_configs.delete("ORDER_TOPIC_CONFIG", "U")

    assert loaded(path).namespace("ORDER_TOPIC_CONFIG") == {"T": "broker-a:4"}
    assert path.read_text() == (
        '{\n\t"configTable":{\n\t\t"ORDER_TOPIC_CONFIG":{\n\t\t\t"T":"broker-a:4"\n\t\t}\n\t}\n}'
    )


def test_a_missing_entry_returns_none(path: Path) -> None:
    kv_configs = loaded(path)

    assert kv_configs.get("n", "k") is None
    assert kv_configs.namespace("n") == {}
    kv_configs.delete("n", "k")
    assert not path.exists()


@pytest.mark.parametrize("damage", ["", "{", '{"configTable":7}', "\xff"])
def test_a_damaged_file_falls_back_to_its_backup(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    kv_configs = loaded(path)
    kv_configs.put("n", "k", "old")
    kv_configs.put("n", "k", "new")

    path.write_bytes(damage.encode("latin-1"))

    assert loaded(path).get("n", "k") == "old"
    assert not damage or "key-value file damaged" in caplog.text


def test_a_damaged_file_without_backup_is_reported_in_one_sentence(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("{")
    path.with_name("kvConfig.json.bak").write_text("{")

    with pytest.raises(StoreError, match=r"neither .* can be read"):
        loaded(path)


def test_texts_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kv_configs = loaded(path)
    kv_configs.put("n", "k", "x" * TEXT_BYTES_MAX)

    for namespace, key, value in (
        ("n" * (TEXT_BYTES_MAX + 1), "k", "v"),
        ("n", "k" * (TEXT_BYTES_MAX + 1), "v"),
        ("n", "k", "订" * (TEXT_BYTES_MAX // 3 + 1)),
    ):
        with pytest.raises(RequestRefusedError, match="bytes"):
            kv_configs.put(namespace, key, value)
    monkeypatch.setattr(kv_configs_module, "ENTRIES_MAX", 2)
    kv_configs.put("m", "k", "v")
    kv_configs.put("m", "k", "w")
    with pytest.raises(RequestRefusedError, match="the table is full: 2 entries"):
        kv_configs.put("m", "l", "v")


def test_an_unwritable_change_is_rejected_and_not_kept(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kv_configs = loaded(path)
    path.parent.parent.joinpath("namesrv").write_text("a file where the directory should be")

    with pytest.raises(RequestRefusedError, match="cannot be stored"):
        kv_configs.put("n", "k", "v")

    assert kv_configs.get("n", "k") is None
