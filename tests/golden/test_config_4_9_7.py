"""Our keys compared with those of a real broker 4.9.7."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.config.keys import IMPORTANT_KEYS, KEYS
from broker_core.config.loading import build
from broker_core.config.unsupported_keys import ONE_VALUE, WITHOUT_EFFECT

TEXT = (Path(__file__).parent / "config" / "4.9.7.txt").read_text()
LINES = [line.removeprefix("important ") for line in TEXT.splitlines()]
THEIRS = dict(line.split("=", 1) for line in LINES)
IMPORTANT = {
    line.removeprefix("important ").partition("=")[0]
    for line in TEXT.splitlines()
    if line.startswith("important ")
}
DIFFERENT = {
    "brokerIP1": "bindAddress, which is ours",
    "brokerIP2": "bindAddress, which is ours",
    "brokerName": "the machine's name",
    "listenPort": "the broker's start sets 10911 over the class's 8888",
    "storePathCommitLog": "empty there until the broker starts",
    "storePathRootDir": "the user's home",
}
# RocketMQ reads one of its fields by another name.
READ_AS = {"isEnableBatchPush": "enableBatchPush"}


@pytest.fixture(scope="module")
def ours() -> dict[str, str]:
    configuration, errors = build({})
    assert not errors
    return dict(configuration.items())


def test_every_key_of_the_original_is_known() -> None:
    known = {*KEYS, *WITHOUT_EFFECT, *ONE_VALUE}

    assert {READ_AS.get(key, key) for key in THEIRS} <= known


@pytest.mark.parametrize("key", sorted(THEIRS.keys() & KEYS.keys() - DIFFERENT))
def test_defaults_match_the_original(key: str, ours: dict[str, str]) -> None:
    assert ours[key] == THEIRS[key]


@pytest.mark.parametrize("key", sorted(THEIRS.keys() & ONE_VALUE.keys()))
def test_the_only_supported_value_is_the_originals_default(key: str) -> None:
    assert ONE_VALUE[key].value == THEIRS[key]


def test_m_prints_the_keys_that_the_original_prints_as_important() -> None:
    assert IMPORTANT & KEYS.keys() <= set(IMPORTANT_KEYS)
