from __future__ import annotations

from broker_core.config.keys import ALIASES, KEYS
from broker_core.config.loading import build
from broker_core.config.unsupported_keys import JAVA_CLASSES, ONE_VALUE, WITHOUT_EFFECT


def defaults() -> dict[str, str]:
    configuration, _ = build({})
    return dict(configuration.items())


def test_no_key_is_in_two_tables() -> None:
    tables = [set(KEYS), set(WITHOUT_EFFECT), set(ONE_VALUE), set(JAVA_CLASSES), set(ALIASES)]

    assert sum(map(len, tables)) == len(set().union(*tables))


def test_each_range_includes_its_default() -> None:
    for name, key in KEYS.items():
        if key.kind is int:
            assert key.setting.low <= int(defaults()[name]) <= key.setting.high, name
