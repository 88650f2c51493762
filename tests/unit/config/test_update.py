from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.config import loading
from broker_core.config.keys import LIVE_KEYS
from broker_core.config.update import update
from broker_core.errors import ConfigError

if TYPE_CHECKING:
    from broker_core.config.configuration import Configuration


def build(**table: str) -> Configuration:
    configuration, errors = loading.build(table)
    assert not errors, [str(error) for error in errors]
    return configuration


def test_changeable_keys_change_immediately_and_all_or_nothing() -> None:
    configuration = build()

    assert update(configuration, {"fileReservedTime": "24", "traceOn": "true"}) == [
        "fileReservedTime"
    ]
    with pytest.raises(ConfigError) as bad:
        update(configuration, {"fileReservedTime": "1", "maxMessageSize": "0"})
    with pytest.raises(ConfigError) as forbidden:
        update(configuration, {"storePathRootDir": "/tmp/x"})

    assert configuration.store.file_reserved_time == 24
    assert bad.value.expected
    assert not forbidden.value.expected


def test_no_changeable_key_is_a_path() -> None:
    assert not any("path" in key.lower() or "dir" in key.lower() for key in LIVE_KEYS)


def test_a_packages_log_level_may_change() -> None:
    configuration = build(**{"logLevel.broker_core.store": "DEBUG"})

    changed = update(
        configuration,
        {"logLevel": "WARNING", "logLevel.broker_core.store": "DEBUG", "logLevel.uvloop": "ERROR"},
    )

    assert changed == ["logLevel", "logLevel.uvloop"]
    assert configuration.log_levels == {"broker_core.store": "DEBUG", "uvloop": "ERROR"}
    assert dict(configuration.items())["logLevel.uvloop"] == "ERROR"


@pytest.mark.parametrize(
    ("key", "value"),
    [("logLevel", "LOUD"), ("logLevel.broker_core.stor", "INFO"), ("logLevel.", "INFO")],
)
def test_an_invalid_log_level_changes_nothing(key: str, value: str) -> None:
    configuration = build()

    with pytest.raises(ConfigError) as bad:
        update(configuration, {"logLevel.broker_core": "ERROR", key: value})

    assert bad.value.expected
    assert configuration.log_levels == {}
